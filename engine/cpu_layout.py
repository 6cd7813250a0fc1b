"""Lays a loaded network out for our kernels on the CPU. Needs numba."""

from __future__ import annotations

from transformers import PreTrainedModel

from engine.activation import use_rowwise_activations
from engine.config import Quantization
from engine.kernels import prepare_kernels
from engine.layer_fusing import fuse_layers
from engine.linear import pack_linears
from engine.quantize import quantize_linears


def lay_out(model: PreTrainedModel, *, quantize: Quantization | None) -> bool:
    """Replace what our kernels compute faster; whether a row's result is now the same in any company.

    With `quantize` the linear layers, but for the head, get weights in that format. Raises ModelRefused
    where there are none.
    """
    # These layers have kernels of their own, whatever computes attention.
    prepare_kernels()
    use_rowwise_activations(model)
    if quantize is None:
        fuse_layers(model)
    else:
        quantize_linears(model, head=model.get_output_embeddings())
    return pack_linears(model)
