"""Packed linear layers: the same product, and the same for a row whatever is computed beside it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.linear import PackedLinear, is_right, pack_linears


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 5), (1, 64)])
def test_product_is_that_of_torch(bias: bool, shape: tuple[int, ...]) -> None:
    linear = nn.Linear(96, 48, bias=bias)
    rows = torch.randn(*shape, 96)

    result = PackedLinear(linear)(rows)

    torch.testing.assert_close(result, linear(rows).detach(), atol=1e-5, rtol=1e-5)


def test_no_rows_give_no_rows() -> None:
    assert PackedLinear(nn.Linear(96, 48))(torch.empty(1, 0, 96)).shape == (1, 0, 48)


@pytest.mark.parametrize(("width", "out"), [(96, 48), (576, 192), (1536, 576), (33, 21), (5, 1)])
def test_row_does_not_depend_on_its_batch(width: int, out: int) -> None:
    layer = PackedLinear(nn.Linear(width, out, bias=False))
    rows = torch.randn(70, width)
    whole = layer(rows)

    alone = torch.cat([layer(row[None]) for row in rows])
    by_eleven = torch.cat([layer(rows[first : first + 11]) for first in range(0, 70, 11)])

    assert torch.equal(alone, whole)
    assert torch.equal(by_eleven, whole)


class Leaky(PackedLinear):
    """A product that lets rows see each other, by a little."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows) + 1e-7 * rows.mean()


class Wrong(PackedLinear):
    """A product by something else."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return 1.01 * super().forward(rows)


@pytest.mark.parametrize("kind", [Leaky, Wrong])
def test_inexact_product_is_found_out(kind: type[PackedLinear]) -> None:
    linear = nn.Linear(96, 48)

    assert not is_right(kind(linear), linear)


def test_inexact_product_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 8))
    own = PackedLinear.forward
    monkeypatch.setattr(PackedLinear, "forward", lambda self, rows: own(self, rows) * 1.01)

    exact = pack_linears(network)

    assert not exact
    assert all(type(layer) is nn.Linear for layer in network)


@pytest.mark.parametrize("bias", [False, True])
def test_product_is_added_to_where_a_layer_starts(bias: bool) -> None:
    linear = nn.Linear(20, 37, bias=bias)
    rows, start = torch.randn(13, 20), torch.randn(13, 37)
    given = start.clone()

    result = PackedLinear(linear).added_to(start, rows)

    torch.testing.assert_close(result, given + linear(rows).detach(), atol=1e-5, rtol=1e-5)
    assert torch.equal(start, given)


def test_shared_weight_stays_with_the_embedding() -> None:
    network = nn.ModuleDict({"embed": nn.Embedding(40, 32), "head": nn.Linear(32, 40, bias=False)})
    network["head"].weight = network["embed"].weight
    rows = torch.randn(3, 32)
    expected = network["head"](rows).detach()

    exact = pack_linears(network)

    assert exact
    assert isinstance(network["head"], PackedLinear)
    torch.testing.assert_close(network["head"](rows), expected, atol=1e-5, rtol=1e-5)
    assert network["embed"](torch.tensor([3])).shape == (1, 32)


def test_other_products_make_a_network_inexact() -> None:
    assert not pack_linears(nn.Sequential(nn.Linear(8, 8), nn.Bilinear(8, 8, 8)))
