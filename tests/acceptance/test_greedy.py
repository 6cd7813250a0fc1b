"""Greedy answers of a run equal what transformers generates for each prompt alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.batch_file import EXAMPLES, answer_text, read_answer, read_lines, write_lines
from tests.acceptance.conftest import Run
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import HeadraceCommand
from tests.acceptance.process_tree import peak_memory_bytes
from tests.acceptance.reference import Expected, greedy_answers, is_greedy
from tests.acceptance.state_database import window_sizes

#: Short ones: a chat with a line break in its answer, another script, and a completion with a stop string.
_SHORT = ("capital-of-kenya", "thai-thanks", "classify-review")

_MAX_WORKER_BYTES = 2_500_000_000


@pytest.mark.usefixtures("one_thread")
def test_tiny_model_on_every_greedy_example(examples_run: Run, tiny_model: Path) -> None:
    asked = [line for line in examples_run.requests if is_greedy(line)]
    expected = greedy_answers(tiny_model, asked)

    found = _found(examples_run.requests, examples_run.records)

    assert len(asked) == 36
    assert [found[line["custom_id"]] for line in asked] == expected
    # The check would be empty if the model said the same whatever it was asked.
    assert len({answer.text for answer in expected}) > 30


@pytest.mark.demo_model
def test_demo_model_on_three_examples_within_its_memory(
    demo_folder: Path, demo_flags: list[str | Path], tmp_path: Path
) -> None:
    asked = [line for line in read_lines(EXAMPLES) if line["custom_id"] in _SHORT]

    records, peak_bytes = _run_watched(asked, demo_flags, tmp_path)

    found = _found(asked, records)
    assert [found[line["custom_id"]] for line in asked] == greedy_answers(demo_folder, asked)
    assert "Nairobi" in found["capital-of-kenya"].text
    assert 0 < peak_bytes < _MAX_WORKER_BYTES


@pytest.mark.slow
@pytest.mark.demo_model
@pytest.mark.timeout(1800)
def test_demo_model_on_every_greedy_example(
    demo_folder: Path,
    demo_flags: list[str | Path],
    tmp_path: Path,
    record_figure: Callable[[str], None],
) -> None:
    requests = read_lines(EXAMPLES)
    asked = [line for line in requests if is_greedy(line)]

    records, peak_bytes = _run_watched(requests, demo_flags, tmp_path)

    found = _found(requests, records)
    expected = greedy_answers(demo_folder, asked)
    record_figure(f"peak memory of the worker on the examples: {peak_bytes / 1e6:.0f} MB")
    assert [found[line["custom_id"]] for line in asked] == expected
    assert any(answer.finish_reason == "stop" for answer in expected)
    assert 0 < peak_bytes < _MAX_WORKER_BYTES


def _run_watched(
    requests: list[dict[str, Any]], flags: list[str | Path], folder: Path
) -> tuple[list[dict[str, Any]], int]:
    """Run with everything in one window; return the records and the worker's peak memory in bytes."""
    source = write_lines(folder / "in.jsonl", requests)
    output = folder / "out.jsonl"
    # A run waits patiently for company, so that nothing depends on how fast the requests come in.
    arguments = ["run", source, "-o", output, "--keep", "--max-wait-seconds", "1", *flags]
    peak_bytes = 0

    def ended() -> bool:
        nonlocal peak_bytes
        peak_bytes = max([peak_bytes, *map(peak_memory_bytes, command.tree.members())])
        return command.process.poll() is not None

    with HeadraceCommand(arguments, folder, {}) as command:
        eventually(ended, what="the end of the run", timeout_seconds=900)
        assert command.wait().exit_code == 0
    assert window_sizes(folder / "out.jsonl.headrace" / "headrace.db") == [len(requests)]
    return read_lines(output), peak_bytes


def _found(requests: list[dict[str, Any]], records: list[dict[str, Any]]) -> dict[str, Expected]:
    """The answers by custom_id, in the form of what was expected."""
    answers = {}
    for request, record in zip(requests, records, strict=True):
        answer = read_answer(request, record)
        assert answer.usage is not None
        answers[request["custom_id"]] = Expected(
            answer_text(answer),
            answer.usage.prompt_tokens,
            answer.usage.completion_tokens,
            str(answer.choices[0].finish_reason),
        )
    return answers
