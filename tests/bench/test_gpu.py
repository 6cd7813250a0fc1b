"""The whole command on a CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.cuda.command import main
from bench.cuda.quiet import keep_quiet
from bench.cuda.setting import CHANGES, kernels_to_try, settings_to_try

_ROOT = Path(__file__).parents[2]


#: What a finding is, in the JSON.
_Json = dict[str, Any]


def test_the_command_checks_and_times_a_tiny_model_on_a_cpu(tmp_path: Path) -> None:
    lines, sections = _run(tmp_path)

    assert _findings(sections, "machine")[0]["measured"] == "CPU, 1 threads"
    kernels = _findings(sections, "logits")
    assert [kernel["setting"] for kernel in kernels[::2]] == ["cpu, blocks of 16", "reference, blocks of 16"]
    assert all(kernel["is_right"] for kernel in kernels)
    # Four prompts, each with its last token and the six that were forced.
    assert {kernel["figures"]["num_rows"] for kernel in kernels[1::2]} == {28}
    settings = _findings(sections, "settings")
    assert [(setting["setting"], setting["is_right"]) for setting in settings] == [
        ("cpu, blocks of 16", True)
    ]
    assert [step["setting"].split()[0] for step in _findings(sections, "decode")] == ["1", "4"]
    shares = [row["share"] for name in ("decode", "prefill") for row in _findings(sections, name)]
    assert all(0 < share < 1 for share in shares)
    # In float32 all three say the same.
    assert [rival["figures"]["same_texts"] for rival in _findings(sections, "rivals")] == [6, 6, 6]
    # Neither overlap, graphs nor another device to be busy.
    missing = [section["task"] for section in sections if section["ending"]["outcome"] != "done"]
    assert [task["part"] or task["section"] for task in missing] == [*list(CHANGES)[1:], "busy"]
    assert lines[-1].startswith("| tiny | rivals | transformers' continuous batching |")
    assert "Never exercised here:" in lines


def test_in_bfloat16_ours_is_as_far_off_as_transformers_is(tmp_path: Path) -> None:
    lines, sections = _run(tmp_path, "--dtype", "bfloat16", "--sections", "logits,settings")

    error, choices = _findings(sections, "logits")
    assert 0.5 < error["share"] <= 2
    assert error["figures"]["error"] > 1e-3
    assert choices["is_right"]
    assert [setting["is_right"] for setting in _findings(sections, "settings")] == [True]
    # The kernel for the CPU takes float32 alone.
    assert sum("attention cpu cannot serve it" in line for line in lines) == 2
    assert sum(line.endswith("| NOT EXERCISED |") for line in lines) == 2 + len(CHANGES) - 1


def _run(out: Path, *arguments: str) -> tuple[list[str], list[_Json]]:
    """The lines printed and the sections in the JSON, of a run in which all is right."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", "--device", "cpu", "--models", "tiny", *arguments],
        cwd=_ROOT,
        env=os.environ | {"OUT": str(out), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sections: list[_Json] = json.loads((out / "gpu.json").read_text())["sections"]
    return done.stdout.splitlines(), sections


def _findings(sections: list[_Json], name: str) -> list[_Json]:
    return [row for section in sections if section["task"]["section"] == name for row in section["findings"]]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])

    assert code == 2
    assert "finds no CUDA device; --device cpu --models tiny needs none" in capsys.readouterr().err


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tokenizers" else name)

    code = main(["--device", "cpu"])

    assert code == 2
    assert (
        capsys.readouterr().err == "bench.gpu: missing here: tokenizers; python -m pip install tokenizers\n"
    )


def test_where_structlog_is_missing_its_events_are_logged_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "structlog", None)

    keep_quiet()
    importlib.import_module("structlog").get_logger("engine").warning("kernels_not_kept", error="full")

    assert [record.getMessage() for record in caplog.records] == ["kernels_not_kept {'error': 'full'}"]


def test_every_fast_attention_is_compared_once_and_the_plain_one_only_checked() -> None:
    assert settings_to_try("cuda") == [
        "as served",
        "without overlap",
        "without graphs",
        "without either",
        "in half batches",
        "varlen, blocks of 256",
        "triton, blocks of 256",
    ]
    assert list(kernels_to_try("cuda"))[-3:] == [
        "varlen, blocks of 16",
        "triton, blocks of 16",
        "reference, blocks of 256",
    ]
