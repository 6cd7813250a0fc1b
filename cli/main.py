"""The command `headrace`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cli.batch import batch
from cli.cancel import cancel
from cli.get import get
from cli.health import health
from cli.keys import keys
from cli.ls import ls
from cli.migrate import migrate
from cli.retry import retry
from cli.role import api, background, worker
from cli.run import run
from cli.submit import submit
from cli.up import up
from models.errors import HeadraceError, StartupError
from models.version import headrace_version

app = typer.Typer(
    name="headrace",
    help="Runs LLM requests as durable asynchronous jobs.",
    add_completion=False,
    # Plain help: the boxes cut long flags off.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command in (up, run, submit, get, ls, cancel, retry, api, worker, background, migrate, health):
    app.command(_command.__name__)(_command)
app.add_typer(batch, name="batch")
app.add_typer(keys, name="keys")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {headrace_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character shows a question mark; nothing stops for that.
            stream.reconfigure(errors="replace")
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code.

    0: done. 1: it failed, or some of its jobs did. 2: it could not start, or was not understood.
    130: interrupted. What went wrong is said on stderr in one line.
    """
    if any("\udc80" <= character <= "\udcff" for argument in arguments for character in argument):
        return _refuse("the arguments hold bytes that are not UTF-8", 2)
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="headrace", standalone_mode=False)
    except StartupError as error:
        return _refuse(error.message, 2)
    except HeadraceError as error:
        return _refuse(error.message, 1)
    except typer.TyperException as error:
        return _refuse(error.format_message(), error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _refuse(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _refuse("interrupted", 130)
    return code if isinstance(code, int) else 0


def _refuse(message: str, code: int) -> int:
    print(f"headrace: {message}", file=sys.stderr, flush=True)
    return code
