"""What a run came to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.answer_file import answer_error

#: How many failures are told one by one.
MAX_TOLD_FAILURES = 5


@dataclass(slots=True)
class RunSummary:
    """Counts of a whole output, and the speed of the start that completed it."""

    output: Path
    succeeded: int = 0
    failed: int = 0
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    #: The first failures, one line each.
    failures: list[str] = field(default_factory=list)
    #: From the worker being ready to the last answer.
    seconds: float = 0.0
    #: From the command's start to the worker being ready.
    startup_seconds: float = 0.0
    #: Completion tokens computed in `seconds`; less than all of them when an earlier start was killed.
    num_new_tokens: int = 0

    @property
    def tokens_per_second(self) -> float | None:
        """None when there was nothing left to compute."""
        return self.num_new_tokens / self.seconds if self.seconds > 0 and self.num_new_tokens else None

    def count(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Pass output records on and count them on their way."""
        for record in records:
            error = answer_error(record)
            if error is None:
                self.succeeded += 1
                usage = record["response"]["body"].get("usage") or {}
                self.num_prompt_tokens += usage.get("prompt_tokens", 0)
                self.num_completion_tokens += usage.get("completion_tokens", 0)
            else:
                self.failed += 1
                self._tell(record, error)
            yield record

    def text(self) -> str:
        """The summary for people, with the first failures."""
        parts = [f"{self.succeeded:,} answered, {self.failed:,} failed"]
        if self.tokens_per_second is None and self.num_completion_tokens:
            parts.append(f"{self.num_completion_tokens:,} tokens, computed before")
        if self.tokens_per_second is not None:
            earlier = self.num_completion_tokens - self.num_new_tokens
            before = f"{earlier:,} tokens computed before and " if earlier > 0 else ""
            parts.append(f"{before}{self.num_new_tokens:,} tokens in {self.seconds:.1f} s")
            parts.append(f"{self.tokens_per_second:,.1f} tokens/s")
        more = self.failed - len(self.failures)
        told = [f"  {failure}" for failure in self.failures] + ([f"  and {more:,} more"] if more else [])
        return "\n".join([" · ".join(parts), *told])

    def as_json(self) -> dict[str, Any]:
        """The summary for programs."""
        speed = self.tokens_per_second
        return {
            "object": "run.summary",
            "total": self.succeeded + self.failed,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_completion_tokens,
            "seconds": round(self.seconds, 3),
            "startup_seconds": round(self.startup_seconds, 3),
            "new_completion_tokens": self.num_new_tokens,
            "tokens_per_second": None if speed is None else round(speed, 2),
            "output": str(self.output),
        }

    def _tell(self, record: Mapping[str, Any], error: Mapping[str, Any]) -> None:
        if len(self.failures) < MAX_TOLD_FAILURES:
            name = f" ({record['custom_id']})" if record["custom_id"] else ""
            self.failures.append(f"line {record['line']}{name}: {error['code']}: {error['message']}")
