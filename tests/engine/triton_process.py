"""Processes of their own for Triton: whether it interprets is settled when it is first imported."""

from __future__ import annotations

import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.attention.choice import load_attention
from tests.engine.attention_case import AttentionCase
from tests.services.missing import missing


def start_process(*, interprets: bool, folder: Path) -> ProcessPoolExecutor:
    """A process that interprets Triton's kernels on the CPU, or compiles them into the folder."""
    if importlib.util.find_spec("triton") is None:
        missing("triton is not installed (the extra `triton`)")
    process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", str(int(interprets)))
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        process.submit(_prepare, interprets).result()
    return process


def _prepare(interprets: bool) -> None:
    torch.set_num_threads(1)
    if interprets:
        _multiply_bfloat16()


def _multiply_bfloat16() -> None:
    """Mend Triton 3.7's interpreter, which multiplies the bits of bfloat16 as if they were integers."""
    from triton.language import float32
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    own = InterpreterBuilder.create_dot

    def as_float32(handle: Any) -> Any:
        if handle.data.dtype != np.uint16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return own(self, as_float32(a), as_float32(b), *rest)

    InterpreterBuilder.create_dot = create_dot


def answer(case: AttentionCase) -> npt.NDArray[np.float32]:
    """What our Triton kernels answer."""
    return case.answer(load_attention("triton"))


def compile_kernels(capability: int, dtype: str, constants: dict[str, Any]) -> dict[str, int]:
    """Compile every kernel for a GPU of this capability; the shared memory that each takes, in bytes."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from engine.attention.triton_parts import attend_parts, join_parts
    from engine.attention.triton_spans import attend_spans

    number = {"scale": "fp32", "softcap": "fp32", "sums_ptr": "*fp32", "weights_ptr": "*fp32"}
    index = dict.fromkeys(("tables_ptr", "starts_ptr", "lengths_ptr"), "*i32")
    shared = {}
    for kernel in (attend_spans, attend_parts, join_parts):
        kinds = {
            name: "constexpr"
            if name in constants
            else (number | index).get(name, f"*{dtype}" if name.endswith("_ptr") else "i32")
            for name in kernel.arg_names
        }
        source = ASTSource(kernel, kinds, {name: constants[name] for name in kinds if name in constants})
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        shared[kernel.fn.__name__] = compiled.metadata.shared
    return shared
