from __future__ import annotations

import gzip
import io
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.instance_lock import InstanceLock
from cli.main import run_command
from cli.setting_flags import _HELP
from models.settings import Settings
from tests.cli.batch_files import request, write_lines
from tests.cli.process import REPOSITORY


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "data"))
    # Set up for good, logs would go on to the stderr of this test when it is over.
    monkeypatch.setattr("models.logs.configure_logging", lambda settings: None)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run_command(arguments)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    if captured.out or len(lines) != 1 or not lines[0].startswith("headrace: "):
        raise ValueError(f"not one line on stderr: {captured}")
    return code, lines[0]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == 0
    listed = capsys.readouterr().out
    assert all(
        verb in listed for verb in ("up", "run", "submit", "get", "ls", "cancel", "api", "worker", "keys")
    )
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headrace ")


def test_flags_are_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["up", "--help"]) == 0

    assert "--max-num-batched-tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bogus"], "bogus"),
        (["run", "in.jsonl"], "--output"),
        (["run", "in.jsonl", "-o", "out.jsonl"], "in.jsonl cannot be read"),
        (["run", "."], "--output"),
        (["run", ".", "-o", "-"], "is a folder; give a file of requests"),
        (["run", "--bogus"], "--bogus"),
        (["up", "--port", "x"], "--port"),
        (["up", "--port", "70000"], "HEADRACE_PORT"),
        (["worker", "--max-jobs", "x"], "--max-jobs"),
        (["keys", "ls"], "headrace migrate"),
        (["get", "job_1"], "no API key"),
        (["get", "job_1", "--results"], "--results"),
        (["submit"], "--prompt"),
        (["submit", "nowhere.json"], "nowhere.json cannot be read"),
        (["ls", "--url", "ftp://x"], "ftp://x"),
        (["migrate", "--database-url", "mysql://x/y"], "sqlite:/// or postgresql://"),
    ],
)
def test_what_cannot_start_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    code, line = refused(capsys, *arguments)

    assert code == 2
    assert told in line


def test_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        code, line = refused(capsys, "up", "--port", str(port))

    assert code == 2
    assert f"port {port} on 127.0.0.1 is in use" in line


def test_a_data_folder_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr("cli.instance_lock.WAIT_SECONDS", 0.1)
    with InstanceLock(tmp_path / "data"):
        code, line = refused(capsys, "up", "--port", str(port))

    assert code == 2
    assert re.search(r"data folder .* is in use by another Headrace \(pid \d+\)", line)


def test_run_does_not_replace_its_input_or_an_old_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "in.jsonl", [request("a")])
    (tmp_path / "out.jsonl").write_text("old")

    same = refused(capsys, "run", "in.jsonl", "-o", "./in.jsonl")
    old = refused(capsys, "run", "in.jsonl", "-o", "out.jsonl")

    assert same == (2, "headrace: the output would replace the input; give another -o")
    assert old == (2, "headrace: out.jsonl exists; pass --overwrite, or give another -o")
    assert (tmp_path / "out.jsonl").read_text() == "old"


def test_run_of_bad_lines_alone_says_so_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(tmp_path / "in.jsonl", ["{"])

    code = run_command(["run", "in.jsonl", "-o", "out.jsonl", "--print", "--json"])

    captured = capsys.readouterr()
    assert code == 1
    assert captured.out.splitlines()[0] == "[1] "
    assert '"object":"run.summary","total":1,"succeeded":0,"failed":1' in captured.out.splitlines()[-1]
    assert "line 1: invalid_json" in captured.err


def test_run_from_stdin_to_stdout_keeps_its_state_in_the_data_folder_until_all_is_out(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'{\n{"custom_id": "\xc3\xa9"}\n'
    runs = tmp_path / "data" / "runs"

    def run(*flags: str) -> tuple[int, list[bytes]]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
        code = run_command(["run", "-", "-o", "-", *flags])
        return code, capfdbinary.readouterr().out.splitlines()

    kept = run("--keep")
    folders = [path.name for path in runs.iterdir()]
    again = run("--json")

    assert kept[0] == again[0] == 1
    assert [json.loads(line)["line"] for line in kept[1]] == [1, 2]
    assert again[1][:-1] == kept[1]
    assert json.loads(again[1][-1])["output"] == "-"
    assert len(folders) == 1
    assert list(runs.iterdir()) == []


def test_run_packs_an_output_that_is_named_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(b"{\n"))

    code = run_command(["run", "in.jsonl.gz", "-o", "out.jsonl.gz", "--print"])

    (line,) = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).splitlines()
    assert code == 1
    assert json.loads(line)["response"]["status_code"] == 400
    assert capsys.readouterr().out.startswith("[1] \ninvalid_json")


@pytest.mark.parametrize("role", ["api", "worker", "background"])
def test_a_role_is_its_own_program_and_takes_flags_as_settings(role: str, tmp_path: Path) -> None:
    # A file of the role's name in the working folder must not be run in its place.
    (tmp_path / f"{role}.py").write_text("print('not me')")
    script = "import sys; from cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"

    done = subprocess.run(
        [sys.executable, "-c", script, role, "--database-url", "mysql://x/y", "--redis-url", "redis://x"],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "not me" not in done.stdout
    assert "sqlite:/// or postgresql://" in done.stderr.splitlines()[-1]


def test_every_flag_is_a_setting() -> None:
    assert _HELP.keys() <= Settings.model_fields.keys()


def test_the_commands_start_without_what_they_do_not_need() -> None:
    heavy = "{'torch', 'transformers', 'flask', 'sqlalchemy', 'redis'}"
    script = f"import sys, cli.main; print(sorted({heavy} & sys.modules.keys()))"

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "--prompt", "a\udcffb"),
        ("submit", "--prompt", "hi", "--deadline", "nan"),
        ("submit", "--prompt", "hi", "--temperature", "inf"),
        ("submit", "--prompt", "hi", "--idempotency-key", "schlüssel"),
        ("run", "in.jsonl", "-o", ""),
        ("run", "in.jsonl", "-o", "-", "--print"),
    ],
)
def test_odd_arguments_are_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", "a-key-of-sixteen-characters")

    assert run_command(arguments) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headrace: ")


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", "secret-one\nsecret-two")

    assert run_command(["ls"]) == 2

    said = capsys.readouterr().err
    assert "HEADRACE_API_KEY may hold printable ASCII characters only" in said
    assert "secret" not in said
