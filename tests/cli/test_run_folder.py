from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.run_folder import RunFolder, RunIdentity, answer_options
from models.errors import StartupError
from tests.cli.batch_files import settings_in


def begun(output: Path, identity: RunIdentity) -> RunFolder:
    folder = RunFolder(output)
    folder.path.mkdir(exist_ok=True)
    folder.begin(identity)
    return folder


@pytest.fixture
def identity(tmp_path: Path) -> RunIdentity:
    return RunIdentity("ab" * 32, answer_options(settings_in(tmp_path)))


def test_the_same_run_goes_on(tmp_path: Path, identity: RunIdentity) -> None:
    folder = begun(tmp_path / "out.jsonl", identity)
    folder.remember_batch("batch_1")

    again = RunFolder(tmp_path / "out.jsonl")

    again.begin(identity)
    assert again.batch_id == "batch_1"


@pytest.mark.parametrize(
    ("option", "value"), [("model", "other"), ("default_max_tokens", 7), ("max_model_len", 64)]
)
def test_an_option_that_changes_answers_is_named(
    tmp_path: Path, identity: RunIdentity, option: str, value: object
) -> None:
    folder = begun(tmp_path / "out.jsonl", identity)
    other = settings_in(tmp_path).model_copy(update={option: value})

    with pytest.raises(StartupError, match=f"another --{option.replace('_', '-')} ") as refusal:
        folder.begin(RunIdentity(identity.input_sha256, answer_options(other)))

    assert "remove that folder to start over, or give another -o" in refusal.value.message
    assert "\n" not in refusal.value.message


def test_how_fast_it_runs_is_no_other_run(tmp_path: Path, identity: RunIdentity) -> None:
    folder = begun(tmp_path / "out.jsonl", identity)
    faster = settings_in(tmp_path, profile="throughput", max_num_seqs=4, num_threads=1)

    folder.begin(RunIdentity(identity.input_sha256, answer_options(faster)))


def test_a_start_that_was_killed_before_it_wrote_its_state_is_no_obstacle(
    tmp_path: Path, identity: RunIdentity
) -> None:
    folder = RunFolder(tmp_path / "out.jsonl")
    folder.path.mkdir()
    (folder.path / "lock").touch()
    (folder.path / "state.json.new").write_text("{")

    folder.begin(identity)
    folder.begin(identity)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, identity: RunIdentity) -> None:
    folder = RunFolder(tmp_path / "out.jsonl")
    folder.path.mkdir()
    (folder.path / "thesis.tex").write_text("years of work")

    with pytest.raises(StartupError, match=r"thesis\.tex"):
        folder.begin(identity)

    assert (folder.path / "thesis.tex").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_damaged_state_says_what_to_do(tmp_path: Path, identity: RunIdentity, text: str) -> None:
    folder = begun(tmp_path / "out.jsonl", identity)
    (folder.path / "state.json").write_text(text)

    with pytest.raises(StartupError, match="remove"):
        folder.begin(identity)


def test_an_output_that_is_there_is_not_replaced_unasked(tmp_path: Path, identity: RunIdentity) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("precious")

    with pytest.raises(StartupError, match="--overwrite"):
        RunFolder(output).check_output(overwrite=False)

    RunFolder(output).check_output(overwrite=True)
    begun(output, identity).check_output(overwrite=False)


def test_an_output_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="is a folder"):
        RunFolder(tmp_path).check_output(overwrite=True)
    with pytest.raises(StartupError, match="there is no folder"):
        RunFolder(tmp_path / "missing" / "out.jsonl").check_output(overwrite=True)


def test_removing_leaves_nothing(tmp_path: Path, identity: RunIdentity) -> None:
    folder = begun(tmp_path / "out.jsonl", identity)
    (folder.path / "valkey").mkdir()
    (folder.path / "valkey" / "file").touch()

    folder.remove()

    assert list(tmp_path.iterdir()) == []


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StartupError, match="no ordinary file"):
        RunFolder(tmp_path / "pipe").check_output(overwrite=True)


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "far" / "out.jsonl")

    folder = RunFolder(tmp_path / "out.jsonl")

    assert folder.output == tmp_path / "far" / "out.jsonl"
    assert folder.path == tmp_path / "far" / "out.jsonl.headrace"
