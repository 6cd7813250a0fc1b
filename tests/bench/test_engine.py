"""The whole command on a tiny model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.engine import main
from bench.line_up import CONTENDERS, ready

pytestmark = pytest.mark.usefixtures("one_thread")


_AT_HOME = ["ours", "static", "window", "no-prefix", "int8", "generate", "transformers-cb"]


@pytest.fixture(autouse=True)
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the peers' environments."""
    folder = tmp_path / "environments"
    monkeypatch.setattr("bench.peer_setup.ENVIRONMENTS", folder)
    return folder


def make_environment(environments: Path, name: str) -> None:
    """One whose Python runs the fake peer, whatever it is to run."""
    python = environments / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    fake = Path(__file__).with_name("fake_peer.py")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$2"\n')
    python.chmod(0o755)
    (environments / name / ".installed").touch()


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
    assert [row["contender"] for row in conv["rows"]] == _AT_HOME
    out = capsys.readouterr().out
    assert out.count("| ours |") == 2
    assert "scheduler alone, 256 sequences decoding" in out
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
        (["--contenders", "ours,vllm"], "vllm has no environment; make it with `make peers`"),
        (["--contenders", "llama.cpp"], "llama.cpp has no environment"),
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


def test_those_whose_environment_is_made_are_ready(environments: Path) -> None:
    assert ready(CONTENDERS) == _AT_HOME

    make_environment(environments, "llama.cpp")

    assert ready(CONTENDERS) == [*_AT_HOME, "llama.cpp"]


def test_a_peer_is_measured_beside_ours(
    tiny_run: list[str], tmp_path: Path, environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    make_environment(environments, "vllm")

    code = main([*tiny_run, "--lines", "3", "--threads", "1", "--contenders", "ours,vllm"])

    assert code == 0
    conv, prefix = json.loads((tmp_path / "engine.json").read_text())["reports"]
    _, peer = conv["rows"]
    assert peer["seconds"] == [2.5]
    # Two lines that do not count, then those that do: in one process, as are those of the other workload.
    assert peer["figures"] == {"runs": 2, "threads": 1, "paths": 0, "at once": 4}
    assert prefix["rows"][-1]["figures"]["runs"] == 4


def test_one_at_a_time_against_those_who_are_made_for_it(
    tiny_gguf: Path,
    tiny_run: list[str],
    tmp_path: Path,
    environments: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    make_environment(environments, "llama.cpp")

    code = main([*tiny_run, "--model", str(tiny_gguf), "--workloads", "conv", "--alone"])

    assert code == 0
    (report,) = json.loads((tmp_path / "engine.json").read_text())["reports"]
    assert (report["num_lines"], report["num_seats"]) == (8, 1)
    assert [row["contender"] for row in report["rows"]] == ["ours", "int8", "generate", "llama.cpp"]
    assert report["rows"][-1]["figures"]["at once"] == 1
    assert [each.name for each in tmp_path.glob("*-q8_0.gguf")] != []
    assert "output tokens, 1 at a time" in capsys.readouterr().out


def test_llama_cpp_needs_a_gguf_file(
    tiny_run: list[str], environments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_environment(environments, "llama.cpp")

    code = main([*tiny_run, "--lines", "2", "--contenders", "llama.cpp"])

    assert code == 2
    assert "llama.cpp needs a GGUF file" in capsys.readouterr().err


def test_a_peer_that_fails_is_told_of(
    tiny_run: list[str], environments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_environment(environments, "vllm")
    (environments / "vllm" / "bin" / "python").write_text("#!/bin/sh\necho no such thing >&2; exit 3\n")

    code = main([*tiny_run, "--lines", "2", "--contenders", "vllm"])

    assert code == 2
    assert capsys.readouterr().err == "bench.engine: vllm ended with code 3: no such thing\n"


def test_an_unknown_contender_is_named(tiny_run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*tiny_run, "--contenders", "ours,theirs"])

    assert "no 'theirs'; known are ours, static" in capsys.readouterr().err
