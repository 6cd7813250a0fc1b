"""What is measured, by name, and the process that does it."""

from __future__ import annotations

import faulthandler
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection

import torch
import transformers

from bench.cuda.busy import measure_busy
from bench.cuda.decode import measure_decode
from bench.cuda.finding import Ending, Finding, Outcome, Task
from bench.cuda.logits import measure_logits
from bench.cuda.machine import machine_findings
from bench.cuda.prefill import measure_prefill
from bench.cuda.rivals import measure_rivals
from bench.cuda.settings import measure_setting
from bench.cuda.subject import Machine, Subject
from bench.cuda.unavailable import Unavailable
from engine.config import DeviceName

#: After so long a task tells on stderr where it is: it may be about to be stopped.
_PATIENCE_SECONDS = 75.0

_MEASURES: dict[str, Callable[[Subject], Iterable[Finding]]] = {
    "decode": measure_decode,
    "prefill": measure_prefill,
    "busy": measure_busy,
    "rivals": measure_rivals,
}
_MEASURES_OF_PARTS: dict[str, Callable[[Subject, str], Iterable[Finding]]] = {
    "logits": measure_logits,
    "settings": measure_setting,
}


def run_sections(messages: Connection, tasks: Sequence[Task], *, device: DeviceName, dtype: str) -> None:
    """Run tasks one after the other and send what they find; nothing more after one that breaks."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_grad_enabled(False)
    machine = Machine(device, dtype)
    subject: Subject | None = None
    for task in tasks:
        if subject is None or task.model != subject.name:
            # The one before gives its memory back first.
            subject = None
            subject = Subject(task.model, machine) if task.model else None
        faulthandler.dump_traceback_later(_PATIENCE_SECONDS)
        ending = _run(messages, task, machine, subject)
        faulthandler.cancel_dump_traceback_later()
        messages.send(ending)
        if ending.outcome is Outcome.BROKEN:
            return


def _run(messages: Connection, task: Task, machine: Machine, subject: Subject | None) -> Ending:
    try:
        for finding in _findings(task, machine, subject):
            messages.send(finding)
    except Unavailable as reason:
        return Ending(Outcome.NOT_EXERCISED, str(reason))
    except Exception as error:
        # Whatever it is, the table shall show it beside all that went well.
        traceback.print_exc()
        return Ending(Outcome.BROKEN, f"{type(error).__name__}: {error}"[:300])
    return Ending(Outcome.DONE)


def _findings(task: Task, machine: Machine, subject: Subject | None) -> Iterator[Finding]:
    if subject is None:
        yield from machine_findings(machine)
    elif task.part:
        yield from _MEASURES_OF_PARTS[task.section](subject, task.part)
    else:
        yield from _MEASURES[task.section](subject)
