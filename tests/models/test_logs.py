from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

PROGRAM = """
import sys
import structlog
from models.logs import configure_logging
from models.settings import Settings
configure_logging(Settings(log_format=sys.argv[1], log_level=sys.argv[2]))
log = structlog.get_logger()
log.debug("hidden")
log.info("told", job_id="job_1")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
"""


def run(log_format: str, level: str) -> list[str]:
    """The lines on standard error of a process that logs; its standard output must stay empty."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, log_format, level],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_away_from_a_terminal_each_line_is_json() -> None:
    told, failed = (json.loads(line) for line in run("auto", "info"))

    assert (told["event"], told["level"], told["job_id"]) == ("told", "info", "job_1")
    assert told["timestamp"].endswith("Z")
    assert "ZeroDivisionError" in failed["exception"]


LIBRARY = """
import logging
from models.logs import configure_logging
from models.settings import Settings
configure_logging(Settings(log_format="json"))
log = logging.getLogger("some.package")
log.info("hidden")
log.warning("%s turns\\n", "the mill")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("it broke")
"""


def test_what_libraries_log_is_json_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )

    warned, failed = (json.loads(line) for line in done.stderr.splitlines())
    assert (warned["event"], warned["level"], warned["logger"]) == (
        "the mill turns",
        "warning",
        "some.package",
    )
    assert (failed["event"], failed["level"]) == ("it broke", "error")
    assert "ZeroDivisionError" in failed["exception"]


def test_the_level_hides_what_is_below() -> None:
    assert [json.loads(line)["event"] for line in run("json", "error")] == ["failed"]
    assert [json.loads(line)["event"] for line in run("json", "debug")] == ["hidden", "told", "failed"]


def test_the_console_form_is_for_people() -> None:
    line = run("console", "info")[0]

    assert "told" in line
    assert not line.startswith("{")
