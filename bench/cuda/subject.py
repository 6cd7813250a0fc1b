"""The network that the sections of one model share, and the device it is on."""

from __future__ import annotations

import copy
import gc
from functools import cached_property

import torch
from transformers import PreTrainedModel

from bench.cuda.ceiling import Ceiling, measure_ceiling
from bench.cuda.load import Load, load_for
from bench.cuda.setting import Kernel
from bench.cuda.shape import SHAPES, build_model
from bench.cuda.unavailable import Unavailable
from bench.cuda.whole import whole_logits
from engine.config import DeviceName

#: Device memory that is left alone beside what is counted.
_SPARE_BYTES = 4 * 2**30


class Machine:
    """One device, and the numbers that networks and references are computed in there."""

    def __init__(self, device: DeviceName, dtype: str) -> None:
        self.device_name = device
        self.device = torch.device(device)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.reference_dtype = torch.float64 if self.dtype == torch.float32 else torch.float32
        # The reference must be one: no shortened products in it.
        torch.set_float32_matmul_precision("highest")

    @cached_property
    def ceiling(self) -> Ceiling:
        return measure_ceiling(self.device, self.dtype)

    def require(self, num_bytes: float, purpose: str) -> None:
        """Raise Unavailable if the device has not so much memory free."""
        if self.device.type != "cuda":
            return
        _free_memory()
        free = torch.cuda.mem_get_info(self.device)[0] - _SPARE_BYTES
        if free < num_bytes:
            wanted, left = num_bytes / 2**30, max(free, 0) / 2**30
            raise Unavailable(f"{purpose} takes {wanted:.0f} GiB, {left:.0f} GiB are free")


class Subject:
    """A network with random weights, made when it is first asked for."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.shape = SHAPES[name]
        self._reference: PreTrainedModel | None = None
        #: The kernel that serves it best here, and the tokens per second it is served with, once known.
        self.served_kernel: Kernel | None = None
        self.served_speed: float | None = None

    @cached_property
    def load(self) -> Load:
        return load_for(self.name, vocabulary=self.shape.vocabulary)

    @cached_property
    def model(self) -> PreTrainedModel:
        """transformers' own; whoever changes its modules takes a twin."""
        dtype = self.machine.dtype
        self.machine.require(self.shape.num_weights * dtype.itemsize, f"the {self.name} model")
        return build_model(self.shape, device=self.machine.device, dtype=dtype)

    @property
    def reference(self) -> PreTrainedModel:
        """The same weights in wider numbers; takes room until `forget_reference`."""
        if self._reference is None:
            model, dtype = self.model, self.machine.reference_dtype
            # A copy of the narrow weights, then the wide ones in their place.
            num_bytes = self.shape.num_weights * (dtype.itemsize + self.machine.dtype.itemsize)
            self.machine.require(num_bytes, f"the {self.name} reference")
            self._reference = copy.deepcopy(model).to(dtype)
        return self._reference

    @cached_property
    def reference_logits(self) -> torch.Tensor:
        """Logits [rows, vocabulary] of the forced lines by the reference."""
        return whole_logits(self.reference, self.load.forced_lines()).flatten(0, 1)

    @cached_property
    def their_logits(self) -> torch.Tensor:
        """The same by transformers in the model's numbers."""
        return whole_logits(self.model, self.load.forced_lines()).flatten(0, 1)

    def forget_reference(self) -> None:
        """Make room on the device."""
        self._reference = None
        for name in ("reference_logits", "their_logits"):
            self.__dict__.pop(name, None)
        if self.machine.device.type == "cuda":
            _free_memory()


def _free_memory() -> None:
    """Give the CUDA device what nothing refers to any more."""
    gc.collect()
    torch.cuda.empty_cache()
