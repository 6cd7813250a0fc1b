from __future__ import annotations

import gzip
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.fake_api import ANSWERS, BATCH_ID, ERRORS, FakeApi, batch_object, ended, last_json


def test_answers_go_to_stdout_and_all_that_is_for_people_to_stderr(api: FakeApi, run_batch: Run) -> None:
    api.looks = [ended(2, 1)]

    plain = run_batch("download", BATCH_ID)
    as_json = run_batch("download", BATCH_ID, "-o", "-", "--json")

    assert plain[:2] == (1, ANSWERS.decode())
    assert plain[2] == (
        f"headrace: {BATCH_ID} completed: 2 answered, 1 failed; "
        f"why: headrace batch download {BATCH_ID} --errors FILE\n"
    )
    assert as_json[1].startswith(ANSWERS.decode())
    assert last_json(as_json[1])["id"] == BATCH_ID


def test_a_broken_download_goes_on_where_it_was(api: FakeApi, run_batch: Run, tmp_path: Path) -> None:
    api.looks = [ended(2, 0)]
    api.breaks = [5, 7]

    code, _, _ = run_batch("download", BATCH_ID, "-o", "out.jsonl.gz")

    assert code == 0
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == ANSWERS


def test_a_download_that_fails_leaves_the_old_file_alone(
    api: FakeApi, run_batch: Run, tmp_path: Path
) -> None:
    api.looks = [ended(2, 0)]
    api.breaks = [5, 0, 0]
    (tmp_path / "out.jsonl").write_text("old")

    code, _, err = run_batch("download", BATCH_ID, "-o", "out.jsonl", "--overwrite")

    assert code == 1
    assert err.startswith("headrace: cannot reach ")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_file_that_the_batch_does_not_have_is_empty(api: FakeApi, run_batch: Run, tmp_path: Path) -> None:
    api.looks = [ended(0, 3, "cancelled")]
    (tmp_path / "out.jsonl").write_text("old")

    code, _, _ = run_batch("download", BATCH_ID, "-o", "out.jsonl", "--errors", "errors.jsonl", "--overwrite")

    assert code == 1
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    assert (tmp_path / "errors.jsonl").read_bytes() == ERRORS


def test_what_is_not_over_is_not_downloaded_unless_waited_for(
    api: FakeApi, run_batch: Run, tmp_path: Path
) -> None:
    refused = run_batch("download", BATCH_ID, "-o", "out.jsonl")
    untouched = list(tmp_path.iterdir())
    api.looks = [batch_object(), batch_object(), ended(2, 0)]
    waited = run_batch("download", BATCH_ID, "-o", "out.jsonl", "--wait")

    assert refused[0] == 1
    assert "is in_progress; give --wait" in refused[2]
    assert untouched == []
    assert waited[0] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == ANSWERS
