"""The ways to run the engine that are tried. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import AttentionName


@dataclass(frozen=True, slots=True)
class Kernel:
    """Who computes attention, on cache blocks of so many token positions.

    Where its libraries are there it must serve a Llama, unless it `may_refuse`.
    """

    attention: AttentionName
    block_size: int
    may_refuse: bool = False

    def __str__(self) -> str:
        return f"{self.attention}, blocks of {self.block_size}"


@dataclass(frozen=True, slots=True)
class Setting:
    """A kernel, and fields of the engine's configuration under the names they have there."""

    kernel: Kernel
    overlap: bool = True
    cuda_graphs: bool = True
    half_batches: bool = False

    def __str__(self) -> str:
        words = [name for name, on in (("overlap", self.overlap), ("graphs", self.cuda_graphs)) if on]
        words += ["half batches"] if self.half_batches else []
        return ", ".join([str(self.kernel), *words])


AS_SERVED = "as served"
#: Whether steps overlap, are graphs, and come in half batches, by what that is called.
CHANGES = {
    AS_SERVED: (True, True, False),
    "without overlap": (False, True, False),
    "without graphs": (True, False, False),
    "without either": (False, False, False),
    "in half batches": (True, True, True),
}


def kernels_to_try(device: str) -> dict[str, Kernel]:
    """Every attention of this kind of device, on large and small blocks; the fastest first."""
    if device == "cpu":
        # The first computes in float32 only.
        kernels = [Kernel("cpu", 16, may_refuse=True), Kernel("reference", 16)]
    else:
        # Others give flash attention pages of 256 tokens; whether it takes less is for the device to say.
        kernels = [
            Kernel("varlen", 256),
            Kernel("triton", 256),
            Kernel("varlen", 16, may_refuse=True),
            Kernel("triton", 16),
            Kernel("reference", 256),
        ]
    return {str(kernel): kernel for kernel in kernels}


def settings_to_try(device: str) -> list[str]:
    """How they are called: the changes, then each attention that is there to be fast."""
    names: dict[AttentionName, str] = {}
    for name, kernel in kernels_to_try(device).items():
        names.setdefault(kernel.attention, name)
    return [*CHANGES, *(name for attention, name in names.items() if attention != "reference")]


def setting_named(name: str, *, served: Kernel, device: str) -> Setting:
    """One of `settings_to_try`, where `served` is the kernel that the engine would take."""
    kernel = served if name in CHANGES else kernels_to_try(device)[name]
    if device == "cpu":
        return Setting(kernel, overlap=False, cuda_graphs=False)
    return Setting(kernel, *CHANGES.get(name, CHANGES[AS_SERVED]))
