"""`headrace run`: a file of requests goes in, one answer a line comes out."""

from __future__ import annotations

from tests.acceptance.batch_file import num_completion_tokens, read_answer
from tests.acceptance.conftest import Run
from tests.acceptance.state_database import window_sizes


def test_every_example_is_answered_in_its_place(examples_run: Run) -> None:
    records = examples_run.records

    assert len(records) == 40
    assert [record["custom_id"] for record in records] == [
        request["custom_id"] for request in examples_run.requests
    ]
    assert [record["line"] for record in records] == list(range(1, 41))
    assert len({record["id"] for record in records}) == 40


def test_answers_have_the_shape_that_the_openai_sdk_reads(examples_run: Run) -> None:
    for request, record in zip(examples_run.requests, examples_run.records, strict=True):
        answer = read_answer(request, record)

        assert record["id"].startswith("batch_req_")
        assert (record["response"]["status_code"], record["error"]) == (200, None)
        assert record["response"]["request_id"]
        assert answer.model == request["body"]["model"]
        assert answer.choices[0].finish_reason in {"stop", "length"}
        assert answer.usage is not None
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        assert answer.usage.completion_tokens <= request["body"]["max_tokens"]


def test_the_summary_counts_what_the_output_holds(examples_run: Run) -> None:
    summary = examples_run.finished.summary
    usages = [record["response"]["body"]["usage"] for record in examples_run.records]

    assert (summary["total"], summary["succeeded"], summary["failed"]) == (40, 40, 0)
    assert summary["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in usages)
    assert summary["completion_tokens"] == sum(map(num_completion_tokens, examples_run.records))
    assert summary["seconds"] > 0
    assert summary["tokens_per_second"] > 0
    assert "40 answered, 0 failed" in examples_run.finished.stderr


def test_all_examples_ran_in_one_window(examples_run: Run) -> None:
    assert window_sizes(examples_run.state) == [40]
