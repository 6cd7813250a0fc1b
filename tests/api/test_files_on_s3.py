"""Files whose bytes are in a bucket: all ways from handing in to removal, over a server of S3's protocol."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import select

from api.services import services
from models.file_retention import FileRetention
from models.settings import Settings
from models.tables.file import LooseBlob
from tests.api.client import Client
from tests.services.s3_server import S3Server

#: More than S3 takes in one piece of ours, so that it goes up in several.
CONTENT = b"".join(b'{"custom_id":"%09d"}\n' % n for n in range(800_000))

FORM = (
    b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n%b\r\n--edge--\r\n'
)


@pytest.fixture
def server() -> Iterator[S3Server]:
    """A server of its own, since a test stops it."""
    with S3Server() as server:
        yield server


@pytest.fixture
def files_url(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.create_bucket()


@pytest.fixture
def api_settings(api_settings: Settings, files_url: str) -> Settings:
    return api_settings.model_copy(update={"files_url": files_url})


def test_a_file_lives_in_the_bucket(client: Client, server: S3Server, files_url: str) -> None:
    def blobs() -> list[str]:
        found: list[str] = server.files().find(files_url)
        return found

    stored = client.app.test_client().post(
        "/v1/files",
        data=FORM % CONTENT,
        headers={**client.headers, "Content-Type": "multipart/form-data; boundary=edge"},
    )
    file_id = stored.get_json()["id"]
    path = f"/v1/files/{file_id}/content"

    assert len(blobs()) == 1
    assert stored.get_json()["bytes"] == len(CONTENT)
    assert client.get(path).data == CONTENT
    assert client.get(path, Range="bytes=10000000-10000099").data == CONTENT[10_000_000:10_000_100]

    house = services(client.app)
    assert client.app.test_client().delete(f"/v1/files/{file_id}", headers=client.headers).status_code == 200
    retention = FileRetention(house.database, house.files.blobs, history_seconds=1)
    retention.forget()
    with house.database.transaction() as session:
        session.scalars(select(LooseBlob)).one().due_at -= timedelta(minutes=10)
    assert retention.forget()["blobs_removed"] == 1
    assert blobs() == []


def test_a_bucket_that_is_away_is_told_to_the_client(client: Client, server: S3Server) -> None:
    server.stop()

    answer = client.app.test_client().post(
        "/v1/files", data={"purpose": "batch", "file": (io.BytesIO(b"x"), "a")}, headers=client.headers
    )

    assert answer.status_code == 503
    assert answer.get_json()["error"]["code"] == "file_storage_unavailable"
    assert answer.headers["Retry-After"] == "2"
    assert client.get("/v1/files").get_json()["data"] == []
