from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.client import ApiError, Client
from cli.upload import upload, upload_once
from models.settings import Settings
from tests.cli.fake_api import FakeApi

CONTENT = bytes(range(256)) * 100


@pytest.fixture(autouse=True)
def _nothing_stored(api: FakeApi) -> None:
    api.files = {}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(CONTENT)
    return path


def sent(api: FakeApi, source: Path, how: Any = upload) -> Any:
    settings = Settings.model_validate({"api_url": api.url, "api_key": "key"})
    with Client(settings) as client, source.open("rb") as file:
        return how(client, file, filename=source.name)


def test_a_small_file_goes_in_one_request_with_its_length(api: FakeApi, source: Path) -> None:
    stored = sent(api, source)

    assert api.files == {stored["id"]: CONTENT}
    assert api.filenames == ["in.jsonl"]
    assert len(CONTENT) < int(api.headers[0]["content-length"]) < len(CONTENT) + 1000


def test_a_large_file_goes_in_parts_and_a_part_that_fails_is_sent_again(
    api: FakeApi, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.upload.MAX_WHOLE_BYTES", 1000)
    monkeypatch.setattr("cli.upload.PART_BYTES", 10_000)
    api.failures = [503, 500]

    stored = sent(api, source)

    assert api.files == {stored["id"]: CONTENT}
    assert [len(part) for part in api.parts.values()] == [10_000, 10_000, 5_600]
    assert api.bodies("uploads") == [
        {
            "purpose": "batch",
            "filename": "in.jsonl",
            "bytes": len(CONTENT),
            "mime_type": "application/jsonl",
        }
    ]
    assert len(api.bodies("uploads/upload_1/parts")) == 5


@pytest.mark.parametrize(("failures", "tries"), [([503, 503, 503], 3), ([413], 1)])
def test_a_part_is_given_up_after_three_tries_or_where_none_can_help(
    api: FakeApi, source: Path, monkeypatch: pytest.MonkeyPatch, failures: list[int], tries: int
) -> None:
    monkeypatch.setattr("cli.upload.MAX_WHOLE_BYTES", 1000)
    api.failures = failures

    with pytest.raises(ApiError):
        sent(api, source)

    assert len(api.bodies("uploads/upload_1/parts")) == tries


def test_a_file_that_was_sent_once_is_found_again_by_its_content(api: FakeApi, source: Path) -> None:
    first = sent(api, source, upload_once)
    again = sent(api, source, upload_once)
    source.write_bytes(CONTENT[1:])
    other = sent(api, source, upload_once)

    assert first["id"] == again["id"] != other["id"]
    assert api.files == {first["id"]: CONTENT, other["id"]: CONTENT[1:]}
    assert all(name.startswith("in.") and name.endswith(".jsonl") for name in api.filenames)
