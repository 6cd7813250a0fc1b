"""Where the time of the steps goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepSeconds:
    """Seconds summed over all steps: whole steps, the network in them, and drawing tokens from its logits."""

    total: float = 0.0
    forward: float = 0.0
    drawing: float = 0.0

    @property
    def host(self) -> float:
        """What is neither: planning, laying out tensors, text and bookkeeping."""
        return self.total - self.forward - self.drawing
