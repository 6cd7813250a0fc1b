"""Sets numba up: its threads, and where compiled code is kept between starts."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
import structlog

from engine import activation, integer_kernel, panels, product, rounding
from engine.attention import cpu_kernel, micro_kernel

_SOURCES = (activation, cpu_kernel, integer_kernel, micro_kernel, panels, product, rounding)
_KERNELS: Sequence[Any] = (
    activation.silu_rows,
    cpu_kernel.attend,
    cpu_kernel.store,
    product.multiply,
    product.multiply_gated,
    product.multiply_rotated,
    rounding.round_rows,
)

_log = structlog.get_logger(__name__)


def prepare_kernels() -> None:
    """Choose numba's threads and keep compiled code between starts; once, before the first step."""
    _choose_threads()
    _keep_compiled()


def _choose_threads() -> None:
    """The OpenMP threads that torch has already: two pools would fight over the cores."""
    try:
        # Fails where the machine lacks the library that it is linked against.
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError as error:
        _log.warning("openmp_missing", error=str(error), instead="numba's own threads")
        numba.config.THREADING_LAYER = "workqueue"
    else:
        numba.config.THREADING_LAYER = "omp"


def _keep_compiled() -> None:
    """Keep machine code on disk, apart for every version of its sources."""
    sources = [Path(inspect.getfile(module)) for module in _SOURCES]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    root = os.environ.get("NUMBA_CACHE_DIR") or sources[0].parent / "__pycache__"
    folder = Path(root) / f"kernels-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        numba.config.CACHE_DIR = str(folder)
        for kernel in _KERNELS:
            kernel.enable_caching()
    except (OSError, RuntimeError) as error:
        _log.warning("kernels_not_kept", error=str(error), hint="set NUMBA_CACHE_DIR to a folder")
