"""What the validation of a batch's file finds: counts of everything, and as many faults as are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from models.batch_line import BadLine, shortened
from models.errors import Fault
from models.strict_json import dump_json
from models.validation import JobDraft

#: Most faults that are told, and most characters of all of them; of the others only how many there are.
MAX_FAULTS = 10_000
_MAX_TOLD_CHARACTERS = 2 * 10**6
#: Of a fault's message and param, which may quote what the file holds.
_MAX_CHARACTERS = 600


@dataclass(slots=True)
class BatchFindings:
    """Grows line by line; takes no more memory than the faults that are told."""

    #: Tell what is wrong with bodies as well, which fails their lines and not the file.
    with_bodies: bool = False
    num_lines: int = 0
    num_valid: int = 0
    num_prompt_tokens: int = 0
    cost_tokens: int = 0
    #: Whether the file is refused.
    is_fatal: bool = False
    _of_file: list[Fault] = field(default_factory=list)
    _of_lines: list[Fault] = field(default_factory=list)
    _num_untold: int = 0
    _num_characters: int = 0

    def add(self, found: JobDraft | BadLine) -> None:
        """Take the next line."""
        self.num_lines += 1
        if isinstance(found, JobDraft):
            self.num_valid += 1
            self.num_prompt_tokens += found.num_prompt_tokens
            self.cost_tokens += found.cost_tokens
            return
        self.is_fatal |= bool(found.envelope)
        for fault in found.faults if self.with_bodies else found.envelope:
            self._tell(Fault(fault.code, fault.message, fault.param, found.line))

    def refuse(self, fault: Fault) -> None:
        """Take a fault of the file as a whole."""
        self.is_fatal = True
        self._of_file.append(fault)

    def check_size(self, max_lines: int) -> None:
        """Refuse a file that has no line, or too many, once all were added."""
        if not self.num_lines:
            self.refuse(Fault("empty_file", "The file has no line."))
        elif self.num_lines > max_lines:
            message = f"The file has {self.num_lines} lines; at most {max_lines} are allowed."
            self.refuse(Fault("too_many_tasks", message))

    def errors_text(self) -> str | None:
        """Return the faults as the batch keeps them, their lines counted from 1; None where there is none."""
        entries = [_entry(fault) for fault in (*self._of_file, *self._of_lines)]
        if self._num_untold:
            entries.append(_entry(Fault("more_errors", f"{self._num_untold} more faults were found.")))
        return dump_json(entries) if entries else None

    def report_text(self, *, tokens_per_second: float | None) -> str:
        """Return the report of a batch that is only validated."""
        report = {
            "num_lines": self.num_lines,
            "num_valid": self.num_valid,
            "num_invalid": self.num_lines - self.num_valid,
            "prompt_tokens_estimate": self.num_prompt_tokens,
            "max_completion_tokens": self.cost_tokens - self.num_prompt_tokens,
            "cost_tokens": self.cost_tokens,
            "seconds_estimate": round(self.cost_tokens / tokens_per_second, 1) if tokens_per_second else None,
        }
        return dump_json(report)

    def _tell(self, fault: Fault) -> None:
        self._num_characters += len(dump_json(_entry(fault)))
        if len(self._of_lines) < MAX_FAULTS and self._num_characters <= _MAX_TOLD_CHARACTERS:
            self._of_lines.append(fault)
        else:
            self._num_untold += 1


def errors_text(faults: Iterable[Fault]) -> str:
    """Return faults as a batch keeps them."""
    return dump_json([_entry(fault) for fault in faults])


def _entry(fault: Fault) -> dict[str, Any]:
    line = fault.line + 1 if fault.line is not None else None
    param = shortened(fault.param, _MAX_CHARACTERS) if fault.param is not None else None
    message = shortened(fault.message, _MAX_CHARACTERS)
    return {"code": fault.code, "line": line, "message": message, "param": param}
