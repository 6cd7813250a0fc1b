"""Section: which device it is, and what it can do at the most."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.cuda.finding import Finding
from bench.cuda.subject import Machine


def machine_findings(machine: Machine) -> Iterator[Finding]:
    """Its name, and the two ceilings that the other sections are held against."""
    yield Finding("device", _name(machine.device))
    ceiling, numbers = machine.ceiling, str(machine.dtype).removeprefix("torch.")
    yield Finding(
        "copy on the device, bytes read + written",
        f"{ceiling.bytes_per_second / 1e9:,.0f} GB/s",
        figures={"bytes_per_second": ceiling.bytes_per_second},
    )
    yield Finding(
        f"square product of random {numbers}",
        f"{ceiling.flop_per_second / 1e12:,.3g} TFLOP/s",
        figures={"flop_per_second": ceiling.flop_per_second},
    )


def _name(device: torch.device) -> str:
    if device.type == "cpu":
        return f"CPU, {torch.get_num_threads()} threads"
    about = torch.cuda.get_device_properties(device)
    return f"{about.name}, {about.total_memory / 2**30:.0f} GiB, capability {about.major}.{about.minor}"
