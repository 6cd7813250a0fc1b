"""What an error in the middle of a computation means for those who compute."""

from __future__ import annotations

import torch

from engine.protocol import DeviceLost, EngineLost

#: How torch's allocator for the CPU words it; it has no error class of its own.
_CPU_OUT_OF_MEMORY = "can't allocate memory"
#: How an error words it that leaves the device's context unusable, where it has no class of its own.
_DEVICE_ERRORS = ("CUDA error", "device-side assert")


def is_out_of_memory(error: Exception) -> bool:
    """Whether something was not computed for want of memory, and nothing else is wrong."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _CPU_OUT_OF_MEMORY in str(error)


def loss_after(error: Exception, *, num_tokens: int) -> EngineLost:
    """What to raise after a step of so many tokens failed as a whole."""
    lost_with = DeviceLost if _is_of_the_device(error) else EngineLost
    return lost_with(f"a step of {num_tokens} tokens failed: {error}")


def _is_of_the_device(error: Exception) -> bool:
    if isinstance(error, torch.AcceleratorError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _DEVICE_ERRORS)
