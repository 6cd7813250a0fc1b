from __future__ import annotations

import io

import pytest

from cli.client import ApiError, ApiUnreachable, Client
from cli.download import download
from models.settings import Settings
from tests.cli.fake_api import FakeApi

CONTENT = bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def _stored(api: FakeApi) -> None:
    api.files = {"file-1": CONTENT}


def fetched(api: FakeApi, file_id: str = "file-1") -> bytes:
    sink = io.BytesIO()
    with Client(Settings.model_validate({"api_url": api.url, "api_key": "key"})) as client:
        num_bytes = download(client, file_id, sink)
    if num_bytes != len(sink.getvalue()):
        raise ValueError(f"{num_bytes} bytes were told")
    return sink.getvalue()


def test_a_whole_file_comes_with_one_request(api: FakeApi) -> None:
    assert fetched(api) == CONTENT
    assert len(api.asked) == 1


def test_after_each_break_only_the_rest_is_asked_for(api: FakeApi) -> None:
    api.breaks = [100, 200, 1, 300]

    assert fetched(api) == CONTENT

    asked = [headers.get("range") for headers in api.headers]
    assert asked == [None, "bytes=100-", "bytes=300-", "bytes=301-", "bytes=601-"]


def test_a_server_that_knows_no_ranges_sends_all_of_it_again(api: FakeApi) -> None:
    api.breaks = [100, 50]
    api.knows_ranges = False

    assert fetched(api) == CONTENT


def test_three_breaks_without_a_byte_between_them_are_enough(api: FakeApi) -> None:
    api.breaks = [10, 0, 0, 5]

    with pytest.raises(ApiUnreachable):
        fetched(api)

    assert len(api.asked) == 3


def test_what_no_other_try_can_mend_is_raised_at_once(api: FakeApi) -> None:
    api.files = {}

    with pytest.raises(ApiError) as refused:
        fetched(api)

    assert refused.value.status_code == 404
    assert len(api.asked) == 1
