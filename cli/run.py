"""`headrace run`: answer a file of requests on this machine, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.json_output import AsJson, print_json
from cli.request_file import STREAM
from cli.setting_flags import LOG_FLAGS, WORKER_FLAGS, Flags, setting_flags
from models.errors import StartupError
from models.failpoints import arm_failpoints
from models.settings import Settings, load_settings

if TYPE_CHECKING:
    from cli.run_summary import RunSummary


@setting_flags("data_dir", *WORKER_FLAGS, *LOG_FLAGS)
def run(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="OpenAI batch lines, one request a line; - for stdin.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="Answers, in the order of IN; their `line` counts from 1. - for stdout."
        ),
    ],
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an output that is there already.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep OUTPUT.headrace/ when the output is complete.")
    ] = False,
    print_answers: Annotated[bool, typer.Option("--print", help="Show the answers on stdout.")] = False,
    as_json: AsJson = False,
    flags: Flags,
) -> None:
    """Answer a file of requests. Killed and started again, it goes on where it was.

    Its state is in OUTPUT.headrace/ until the output is complete (for stdout: in runs/ of the data folder);
    models are kept in the data folder. IN and OUTPUT are compressed where their names end in .gz.
    Exit code 0: all answered, 1: some lines failed (the output says why), 2: could not run.
    """
    # Imported here because SQLAlchemy takes half a second, which the client commands need not pay.
    from models.logs import configure_logging
    from models.misspelling import warn_of_misspellings

    settings = load_settings(**flags)
    arm_failpoints(settings.data_dir)
    configure_logging(_quiet(settings))
    warn_of_misspellings()
    if output == STREAM and print_answers:
        raise StartupError("with -o - the answers are on stdout anyway; leave --print out")
    if output != STREAM:
        _check_output(source, Path(output), overwrite=overwrite)
    summary = _complete(source, output, settings, keep=keep)
    if print_answers:
        _print_answers(Path(output))
    typer.echo(summary.text(), err=True)
    if as_json:
        print_json(summary.as_json())
    raise typer.Exit(1 if summary.failed else 0)


def _check_output(source: str, output: Path, *, overwrite: bool) -> None:
    from cli.run_folder import RunFolder

    if not output.name:
        raise StartupError("the output has no name; give a file with -o")
    if source != STREAM and Path(source).resolve() == output.resolve():
        raise StartupError("the output would replace the input; give another -o")
    RunFolder(output).check_output(overwrite=overwrite)


def _complete(source: str, output: str, settings: Settings, *, keep: bool) -> RunSummary:
    from cli.batch_run import BatchRun, RunStopped
    from cli.run_folder import RunFolder
    from cli.run_input import read_input
    from cli.run_progress import progress_on_stderr

    requests = read_input(source, settings)
    if output == STREAM:
        folder = RunFolder.of_stdout(settings.data_dir, requests.identity(settings))
    else:
        folder = RunFolder(Path(output))
    try:
        with progress_on_stderr() as progress:
            return BatchRun(folder, settings, progress).complete(requests, keep=keep)
    except RunStopped as stopped:
        typer.echo(f"headrace: {stopped.message}", err=True)
        raise typer.Exit(130) from None


def _quiet(settings: Settings) -> Settings:
    # The comings and goings of the children are for `up`; here the progress tells enough.
    if "log_level" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"log_level": "warning"})


def _print_answers(output: Path) -> None:
    from cli.answer_file import answer_error, answer_text, read_records

    for record in read_records(output):
        error = answer_error(record)
        text = answer_text(record) if error is None else f"{error['code']}: {error['message']}"
        typer.echo(f"[{record['line']}] {record['custom_id'] or ''}\n{(text or '').strip()}\n")
