"""Hands files to the app in this process, and reads them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

from werkzeug.test import TestResponse

from api.services import services
from tests.api.client import Client

LINES = b'{"custom_id":"a"}\n{"custom_id":"b"}\n'
BOUNDARY = "----edge"


def send(
    client: Client, content: bytes = LINES, *, filename: str = "in.jsonl", **fields: str
) -> TestResponse:
    data = {"purpose": "batch", **fields, "file": (io.BytesIO(content), filename)}
    sent = {name: value for name, value in data.items() if value != ""}
    return client.app.test_client().post("/v1/files", data=sent, headers=client.headers)


def store(client: Client, content: bytes = LINES, **more: str) -> dict[str, Any]:
    """Hand in a file that must be taken."""
    answer = send(client, content, **more)
    assert answer.status_code == 200, answer.text
    return cast(dict[str, Any], answer.get_json())


def send_raw(client: Client, body: bytes, **headers: str) -> TestResponse:
    return client.app.test_client().post(
        "/v1/files",
        data=body,
        headers={
            **client.headers,
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
    )


def part(disposition: str, value: bytes) -> bytes:
    return f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + value + b"\r\n"


def blobs(client: Client) -> list[Path]:
    folder = services(client.app).settings.data_dir / "files"
    return sorted(folder.iterdir()) if folder.exists() else []


def read(client: Client, file_id: str, method: str = "GET", **headers: str) -> TestResponse:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.app.test_client().open(
        f"/v1/files/{file_id}/content", method=method, headers={**client.headers, **given}
    )


def error_of(answer: TestResponse) -> tuple[int, str, str | None]:
    error = answer.get_json()["error"]
    return answer.status_code, error["code"], error["param"]
