"""Which attention is chosen, and why another is passed over."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

from engine.attention import varlen
from engine.attention.attention import Attention
from engine.attention.choice import choose_attention
from engine.attention.demand import LayerDemand
from engine.attention.reference import ReferenceForward
from engine.attention.scoring import Scoring
from engine.attention.trial import find_fault
from engine.attention.varlen import VarlenForward
from engine.cache import CacheFormat
from engine.cache_layout import TOKEN_MAJOR, LayerShape
from engine.config import AttentionName
from engine.protocol import ModelRefused

PLAIN = LayerDemand(LayerShape(2, 16, 16), num_query_heads=4, scoring=Scoring(0.25))
WINDOW = replace(PLAIN, scoring=Scoring(0.25, window=4096))
SOFTCAP = replace(PLAIN, scoring=Scoring(0.25, softcap=30.0))
SINKS = replace(PLAIN, scoring=Scoring(0.25, sinks=torch.zeros(4)))
CPU = torch.device("cpu")
FORMAT = CacheFormat(TOKEN_MAJOR)


def choose(dtype: torch.dtype, wished: AttentionName = "auto") -> str:
    return choose_attention([PLAIN], device=CPU, dtype=dtype, block_size=16, wished=wished).name


@pytest.mark.parametrize(
    ("dtype", "wished", "name"),
    [
        (torch.float32, "auto", "cpu"),
        (torch.float32, "reference", "reference"),
        (torch.bfloat16, "auto", "reference"),
    ],
)
def test_fastest_that_serves_is_chosen(dtype: torch.dtype, wished: AttentionName, name: str) -> None:
    assert choose(dtype, wished) == name


@pytest.mark.parametrize(
    ("dtype", "wished", "reason"),
    [(torch.bfloat16, "cpu", "cpu .*BFloat16"), (torch.bfloat16, "varlen", "varlen .*NotImplementedError")],
)
def test_one_wished_for_that_cannot_serve_is_refused(
    dtype: torch.dtype, wished: AttentionName, reason: str
) -> None:
    with pytest.raises(ModelRefused, match=reason):
        choose(dtype, wished)


def test_varlen_attn_without_block_tables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_before(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any) -> None: ...

    monkeypatch.setattr(varlen, "varlen_attn", as_before)

    with pytest.raises(ModelRefused, match="no block_table"):
        choose(torch.bfloat16, "varlen")


def test_engine_runs_without_numba() -> None:
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "import engine.engine, tests.engine.test_choice as choice\n"
        "print(choice.choose(choice.torch.float32))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "reference"
    assert "numba" in done.stdout + done.stderr


def documented_varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: None,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    num_splits: int,
) -> torch.Tensor:
    """What torch's documentation says that `varlen_attn` computes, one row and one head at a time."""
    assert num_splits == 1
    assert block_table.dtype == seqused_k.dtype == cu_seq_q.dtype == torch.int32
    assert enable_gqa
    left, right = window_size
    assert right == 0
    answer = torch.empty(*query.shape[:2], value.shape[3])
    for sequence, length in enumerate(seqused_k.tolist()):
        first, end = cu_seq_q[sequence : sequence + 2].tolist()
        assert end - first <= max_q
        assert length <= max_k
        pages = block_table[sequence].long()
        keys, values = key[pages].flatten(0, 1), value[pages].flatten(0, 1)
        for row in range(first, end):
            at = length - end + row
            seen = slice(0 if left < 0 else max(0, at - left), at + 1)
            for head in range(query.shape[1]):
                shared = head * key.shape[2] // query.shape[1]
                weights = torch.softmax(keys[seen, shared] @ query[row, head] * scale, dim=0)
                answer[row, head] = weights @ values[seen, shared]
    return answer


@pytest.mark.parametrize("demand", [PLAIN, WINDOW], ids=["plain", "window"])
def test_varlen_attn_is_called_as_documented(demand: LayerDemand) -> None:
    attention = Attention("varlen", TOKEN_MAJOR, partial(VarlenForward, kernel=documented_varlen_attn))

    assert find_fault(attention, [demand], FORMAT, block_size=16) is None


@pytest.mark.parametrize("demand", [SOFTCAP, SINKS], ids=["softcap", "sinks"])
def test_varlen_attn_is_not_asked_for_what_it_lacks(demand: LayerDemand) -> None:
    attention = Attention("varlen", TOKEN_MAJOR, partial(VarlenForward, kernel=documented_varlen_attn))

    fault = find_fault(attention, [PLAIN, demand], FORMAT, block_size=16)

    assert fault is not None
    assert "soft caps" in fault


@dataclass(frozen=True, slots=True)
class Without:
    """The plain attention, deaf to a part of what it is asked."""

    forward: ReferenceForward
    deaf_to: dict[str, Any]

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        return self.forward.attend(layer, query, keys, values, replace(scoring, **self.deaf_to))


@pytest.mark.parametrize(
    ("demand", "ignored"), [(WINDOW, "window"), (SOFTCAP, "softcap"), (SINKS, "sinks")], ids=str
)
def test_wrong_results_are_found(demand: LayerDemand, ignored: str) -> None:
    attention = Attention(
        "deaf", TOKEN_MAJOR, lambda batch, cache: Without(ReferenceForward(batch, cache), {ignored: None})
    )
    honest = Attention("plain", TOKEN_MAJOR, ReferenceForward)

    fault = find_fault(attention, [PLAIN, demand], FORMAT, block_size=16)

    assert fault is not None
    assert "off by" in fault
    assert find_fault(honest, [PLAIN, demand], FORMAT, block_size=16) is None
