"""The whole command on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.engine import main
from bench.line_up import CONTENDERS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def tiny_run(llama_folder: Path, tmp_path: Path) -> list[str]:
    """Arguments for a run of a few seconds."""
    sizes = ["--scale", "0.15", "--repeats", "1", "--max-num-seqs", "4", "--kv-cache-bytes", str(2**22)]
    return ["--model", str(llama_folder), "--cache-dir", str(tmp_path), "--data", "generated", *sizes]


def test_everybody_is_measured_and_says_the_same(
    tiny_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))

    code = main([*tiny_run, "--lines", "9"])

    assert code == 0
    conv, prefix = json.loads((tmp_path / "engine.json").read_text())["reports"]
    assert [row["contender"] for row in conv["rows"]] == list(CONTENDERS)
    assert capsys.readouterr().out.count("| ours |") == 2
    for report in (conv, prefix):
        rows: dict[str, dict[str, Any]] = {row["contender"]: row for row in report["rows"]}
        assert {name for name, row in rows.items() if row["same_share"] != 1} <= {"int8"}
        assert rows["static"]["figures"]["useful share"] < rows["ours"]["figures"]["useful share"] == 1
        assert rows["ours"]["figures"]["seats in use"] > rows["static"]["figures"]["seats in use"]
        assert 0 < rows["ours"]["figures"]["host share"] < 1
    found = {row["contender"]: row["figures"].get("prefix hit rate") for row in prefix["rows"]}
    assert found["ours"] == pytest.approx(prefix["attainable_hit_rate"])
    assert found["no-prefix"] == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--data", "/nowhere"], "bench_conv_256.jsonl"),
        (["--model", "/nowhere"], "/nowhere"),
        (["--max-num-seqs", "1", "--kv-cache-bytes", "1"], "cache"),
    ],
)
def test_what_cannot_run_is_one_line(
    tiny_run: list[str], arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*tiny_run, "--lines", "2", "--contenders", "ours", *arguments])

    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bench.engine: ")
    assert named in line


def test_an_unknown_contender_is_named(tiny_run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*tiny_run, "--contenders", "ours,theirs"])

    assert "no 'theirs'; known are ours, static" in capsys.readouterr().err
