"""Packed linear layers: the same product, and the same for a row whatever is computed beside it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.linear import PackedLinear, find_min_rows, pack_linears


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def packed(linear: nn.Linear) -> PackedLinear:
    layer = PackedLinear(linear)
    min_rows = find_min_rows(layer, linear)
    if min_rows is None:
        pytest.fail("this machine's oneDNN is not exact for so plain a shape")
    layer.min_rows = min_rows
    return layer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 5), (1, 64)])
def test_product_is_that_of_torch(bias: bool, shape: tuple[int, ...]) -> None:
    linear = nn.Linear(96, 48, bias=bias)
    rows = torch.randn(*shape, 96)

    result = packed(linear)(rows)

    torch.testing.assert_close(result, linear(rows).detach(), atol=1e-5, rtol=1e-5)


def test_no_rows_give_no_rows() -> None:
    assert packed(nn.Linear(96, 48))(torch.empty(1, 0, 96)).shape == (1, 0, 48)


@pytest.mark.parametrize(("width", "out"), [(96, 48), (576, 192), (1536, 576)])
def test_row_does_not_depend_on_its_batch(width: int, out: int) -> None:
    layer = packed(nn.Linear(width, out, bias=False))
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

    assert find_min_rows(kind(linear), linear) is None


def test_inexact_product_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 8))
    own = PackedLinear.forward
    monkeypatch.setattr(PackedLinear, "forward", lambda self, rows: own(self, rows) * 1.01)

    exact = pack_linears(network)

    assert not exact
    assert all(type(layer) is nn.Linear for layer in network)


def test_missing_operation_leaves_torch_in_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Linear(32, 16))
    rows = torch.randn(3, 32)
    expected = network(rows)

    def missing(self: PackedLinear, linear: nn.Linear) -> None:
        raise AttributeError("no such operation in this torch")

    monkeypatch.setattr(PackedLinear, "__init__", missing)

    assert not pack_linears(network)
    assert torch.equal(network(rows), expected)


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
