"""What `bench.gpu` judges by, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench.cuda.busy import busy_share
from bench.cuda.byte_tokenizer import byte_tokenizer
from bench.cuda.comparison import compare
from bench.cuda.finding import Ending, Finding, Outcome, SectionReport, Task, table
from bench.cuda.own import own_network
from bench.cuda.setting import Kernel
from bench.cuda.shape import SHAPES, Shape, build_model, twin
from bench.cuda.unavailable import Unavailable
from bench.cuda.work import decode_bytes, prefill_flop
from engine.attention.reference import ReferenceForward
from engine.protocol import ModelRefused


class TestComparison:
    _REFERENCE = torch.tensor([[4.0, 3.9, 0.0], [0.0, 5.0, 1.0]])

    def test_an_error_of_twice_theirs_is_right_and_more_is_not(self) -> None:
        theirs = self._REFERENCE + torch.tensor([[0.0, 0.0, 0.125], [0.0, 0.0, 0.0]])
        twice = self._REFERENCE + torch.tensor([[0.0, 0.0, 0.0], [0.0, -0.25, 0.0]])
        more = self._REFERENCE + torch.tensor([[0.0, 0.0, 0.0], [0.0, -0.3125, 0.0]])

        verdicts = [
            compare(ours, theirs, self._REFERENCE, dtype=torch.bfloat16).is_close for ours in (twice, more)
        ]

        assert verdicts == [True, False]

    def test_another_token_is_right_only_where_the_two_likeliest_are_closer_than_the_error(self) -> None:
        tie = self._REFERENCE + torch.tensor([[0.0, 0.25, 0.0], [0.0, 0.0, 0.0]])
        lapse = self._REFERENCE + torch.tensor([[0.0, 0.0, 0.0], [0.0, -2.0, 2.5]])

        found = [compare(ours, tie, self._REFERENCE, dtype=torch.bfloat16) for ours in (tie, lapse)]

        assert [each.num_differing for each in found] == [1, 1]
        assert [each.largest_gap for each in found] == pytest.approx([0.1, 4.0])
        assert [each.differs_only_in_ties for each in found] == [True, False]

    def test_what_is_no_number_is_never_right(self) -> None:
        ours = self._REFERENCE.clone()
        ours[1, 0] = float("nan")

        found = compare(ours, self._REFERENCE, self._REFERENCE, dtype=torch.float32)

        assert not found.is_close


class TestWork:
    #: Two layers of 4x8 (queries), 2x 4x4 (keys, values), 8x4 (output) and 3x 4x6, and 4x10 in the head.
    _SHAPE = Shape(4, 6, 2, 2, 1, 4, 10, is_tied=False)

    def test_a_decode_step_reads_layers_head_and_cache(self) -> None:
        weights = 2 * (32 + 16 + 16 + 32 + 72) + 40
        cached = 3 * 7 * (2 * 2 * 4)

        num_bytes = decode_bytes(self._SHAPE, num_sequences=3, context_tokens=7, element_bytes=2)

        assert num_bytes == 2 * (weights + cached)

    def test_a_prompt_costs_its_products_its_attention_and_one_row_of_the_head(self) -> None:
        products = 2 * 2 * 168 * 3
        # Of three tokens the first sees one, the last all; scores and sums, two layers of two heads of 4.
        attention = (1 + 2 + 3) * 2 * (2 * 2) * 2 * 4
        head = 2 * 40

        flop = prefill_flop(self._SHAPE, num_prompts=5, prompt_tokens=3)

        assert flop == 5 * (products + attention + head)

    def test_the_shapes_are_those_of_the_models_they_are_named_after(self) -> None:
        assert SHAPES["1b"].num_weights == pytest.approx(1.236e9, rel=1e-3)
        assert SHAPES["8b"].num_weights == pytest.approx(8.030e9, rel=1e-3)

    def test_a_shape_counts_the_weights_of_the_model_that_is_built(self) -> None:
        model = build_model(SHAPES["tiny"], device=torch.device("cpu"), dtype=torch.bfloat16)

        matrices = [weight.numel() for weight in model.parameters() if weight.ndim == 2]

        assert sum(matrices) == SHAPES["tiny"].num_weights
        assert model.dtype == torch.bfloat16


def test_a_twin_has_other_modules_around_the_same_weights() -> None:
    model = build_model(SHAPES["tiny"], device=torch.device("cpu"), dtype=torch.float32)

    other = twin(model)
    other.model.layers[0].mlp.act_fn = torch.nn.Identity()

    assert all(one is two for one, two in zip(model.parameters(), other.parameters(), strict=True))
    assert not isinstance(model.model.layers[0].mlp.act_fn, torch.nn.Identity)


def test_work_on_two_streams_is_busy_once_and_the_host_never() -> None:
    events: list[dict[str, Any]] = [
        {"cat": "kernel", "ts": 10.0, "dur": 4.0},
        {"cat": "gpu_memcpy", "ts": 12.0, "dur": 3.0},
        {"cat": "cuda_runtime", "ts": 15.0, "dur": 5.0},
        {"cat": "kernel", "ts": 17.0, "dur": 3.0},
        {"ph": "M", "name": "process_name"},
    ]

    # 10 to 15 and 17 to 20, of 10 to 20.
    assert busy_share(events) == pytest.approx(0.8)


def test_a_trace_without_work_of_the_device_measures_nothing() -> None:
    with pytest.raises(Unavailable):
        busy_share([{"cat": "cuda_runtime", "ts": 1.0, "dur": 1.0}])


def test_the_tokenizer_reads_bytes_and_says_nothing_for_other_ids() -> None:
    tokenizer = byte_tokenizer()

    ids = tokenizer.encode_text("Mühle")

    assert len(ids) == 6
    assert tokenizer.decode([*ids, 300, 128_000]) == "Mühle"


def test_the_table_has_a_row_per_finding_and_one_for_a_section_without() -> None:
    reports = [
        SectionReport(
            Task("decode", "1b"),
            Ending(Outcome.BROKEN, "RuntimeError: out | of\nmemory"),
            [Finding("8 sequences", "2 ms", "floor 1 ms", share=0.5), Finding("all", "0", is_right=False)],
        )
    ]

    lines = table(reports).splitlines()

    assert lines[2:] == [
        "| 1b | decode | 8 sequences | 2 ms | floor 1 ms | 0.50 |  |",
        "| 1b | decode | all | 0 |  |  | WRONG |",
        "| 1b | decode |  | RuntimeError: out / of memory |  |  | BROKEN |",
    ]


def test_a_kernel_that_is_there_and_wrong_is_no_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(SHAPES["tiny"], device=torch.device("cpu"), dtype=torch.float32)
    attend = ReferenceForward.attend
    monkeypatch.setattr(ReferenceForward, "attend", lambda *arguments: 1.5 * attend(*arguments))

    with pytest.raises(ModelRefused, match="gives other logits"):
        own_network(model, Kernel("reference", 16))
    with pytest.raises(Unavailable, match="gives other logits"):
        own_network(model, Kernel("reference", 16, may_refuse=True))
