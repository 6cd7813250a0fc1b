from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.batch_run import BatchRun
from cli.run_folder import RunFolder
from cli.run_input import read_input
from cli.run_progress import LineProgress
from cli.run_summary import RunSummary
from tests.cli.batch_files import request, settings_in, write_lines
from tests.cli.process import REPOSITORY
from tests.cli.test_batch_run import ECHO_WORKER


def test_killed_before_all_was_on_stdout_it_is_written_again_without_a_worker(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    settings = settings_in(tmp_path)
    source = read_input(write_lines(tmp_path / "in.jsonl", [request("a", prompt="one")]), settings)
    folder = RunFolder.of_stdout(settings.data_dir, source.identity(settings))

    def to_stdout(*argv: str) -> RunSummary:
        run = BatchRun(folder, settings, LineProgress(sys.stderr), worker_argv=argv)
        return run.complete(source, keep=False)

    with monkeypatch.context() as patch:
        patch.setattr("cli.batch_run._pass_on", broken_pipe)
        with pytest.raises(BrokenPipeError):
            to_stdout(*ECHO_WORKER)
    summary = to_stdout("false")

    # Logs are on stdout in a test, unlike in the command.
    (line,) = [line for line in capfdbinary.readouterr().out.splitlines() if line.startswith(b"{")]
    assert json.loads(line)["response"]["body"]["choices"][0]["text"] == "ONE"
    assert (summary.succeeded, summary.tokens_per_second) == (1, None)
    assert not folder.path.exists()


def broken_pipe(output: Path) -> None:
    raise BrokenPipeError
