"""A double of the API for the `batch` commands: files, and one batch that is over after some looks.

It speaks real HTTP, and can break a download in the middle or be away for a while.
"""

from __future__ import annotations

import email
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

BATCH_ID = "batch_1"

#: The files of a batch of three lines: two answered, one not.
ANSWERS = b'{"line": 1}\n{"line": 3}\n'
ERRORS = b'{"line": 2}\n'


def batch_object(status: str = "in_progress", **changes: Any) -> dict[str, Any]:
    """A batch as the API shows it."""
    counts = dict.fromkeys(("queued", "running", "succeeded", "failed", "cancelled", "expired"), 0)
    return {
        "id": BATCH_ID,
        "object": "batch",
        "status": status,
        "endpoint": "/v1/completions",
        "model": "echo",
        "lane": "bulk",
        "errors": None,
        "input_file_id": "file-1",
        "output_file_id": None,
        "error_file_id": None,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "counts": counts,
        "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        "created_at": 1_790_000_000,
        "expires_at": None,
        "run_after": None,
        "paused_at": None,
        "queue_position": None,
        "eta_seconds": None,
        "deadline_at_risk": False,
        "report": None,
        **changes,
    }


def ended(completed: int, failed: int, status: str = "completed") -> dict[str, Any]:
    """A batch that is over, with its files."""
    return batch_object(
        status,
        request_counts={"total": completed + failed, "completed": completed, "failed": failed},
        output_file_id="file-output" if completed else None,
        error_file_id="file-errors" if failed else None,
    )


class FakeApi:
    """What the server holds, and what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        #: What looks at the batch show, one after the other; the last one stays. An int is an HTTP status.
        self.looks: list[dict[str, Any] | int] = [batch_object()]
        #: After how many bytes each download breaks off, one after the other.
        self.breaks: list[int] = []
        self.knows_ranges = True
        #: Answers of POST by path, where it is not the batch: (status, body).
        self.refusals: dict[str, tuple[int, dict[str, Any]]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.filenames: list[str] = []
        self.parts: dict[str, bytes] = {}
        #: Statuses with which files and parts are refused, one after the other.
        self.failures: list[int] = []
        self.url = ""

    def look(self) -> dict[str, Any] | int:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def bodies(self, path: str) -> list[Any]:
        """What was posted to a path."""
        return [body for method, asked, body in self.asked if (method, asked) == ("POST", path)]


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    """Serve on a free port of this machine."""
    api = FakeApi()
    handler = type("Handler", (_Handler,), {"api": api})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        api.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    api: FakeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.removeprefix("/v1/").partition("?")
        self._note("GET", path, query)
        if path.endswith("/content"):
            content = self.api.files.get(path.split("/")[1])
            self._refuse(404) if content is None else self._content(content)
        elif path == "files":
            data = [
                {"id": f"file-{number}", "filename": name}
                for number, name in enumerate(self.api.filenames, 1)
            ]
            self._answer(200, {"object": "list", "data": data, "last_id": None, "has_more": False})
        elif path == "batches":
            look = self.api.look()
            self._answer(200, {"object": "list", "data": [look], "last_id": BATCH_ID, "has_more": True})
        elif path == f"batches/{BATCH_ID}":
            look = self.api.look()
            self._answer(200, look) if isinstance(look, dict) else self._refuse(look)
        else:
            self._refuse(404)

    def do_POST(self) -> None:
        path = self.path.removeprefix("/v1/")
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if path in ("files", "uploads/upload_1/parts"):
            self._note("POST", path, None)
            self._take(path, content)
            return
        body: Any = json.loads(content) if content else None
        self._note("POST", path, body)
        status, refusal = self.api.refusals.get(path, (200, {}))
        if status != 200:
            self._answer(status, refusal)
        elif path == "uploads":
            self.api.filenames.append(body["filename"])
            self._answer(200, {"id": "upload_1"})
        elif path == "uploads/upload_1/complete":
            self.api.files["file-1"] = b"".join(self.api.parts[name] for name in body["part_ids"])
            self._answer(200, {"id": "upload_1", "file": {"id": "file-1"}})
        else:
            look = self.api.looks[0]
            self._answer(200, look if isinstance(look, dict) else {})

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""

    def _take(self, path: str, content: bytes) -> None:
        if self.api.failures:
            self._refuse(self.api.failures.pop(0))
            return
        form = self._form(content)
        if path != "files":
            part_id = f"part_{len(self.api.parts)}"
            self.api.parts[part_id] = form["data"][1]
            self._answer(200, {"id": part_id})
        elif form["purpose"][1].strip() == b"batch":
            filename, stored = form["file"]
            self.api.filenames.append(filename)
            file_id = f"file-{len(self.api.filenames)}"
            self.api.files[file_id] = stored
            self._answer(200, {"id": file_id, "object": "file"})
        else:
            self._refuse(400)

    def _form(self, content: bytes) -> dict[str, tuple[str, bytes]]:
        """The fields of a form, with filename and content."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        form = email.message_from_bytes(head + content)
        return {
            str(part.get_param("name", header="content-disposition")): (
                part.get_filename() or "",
                cast(bytes, part.get_payload(decode=True)),
            )
            for part in cast(list[Message], form.get_payload())
        }

    def _content(self, content: bytes) -> None:
        start = 0
        if self.api.knows_ranges and (asked := self.headers.get("Range")):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.api.breaks:
            self.wfile.write(content[start : start + self.api.breaks.pop(0)])
            self.close_connection = True
        else:
            self.wfile.write(content[start:])

    def _refuse(self, status: int) -> None:
        error = {"message": "No.", "type": "invalid_request_error", "param": None, "code": "refused"}
        self._answer(status, {"error": error})

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _note(self, method: str, path: str, body: Any) -> None:
        self.api.asked.append((method, path, body))
        self.api.headers.append({name.lower(): value for name, value in self.headers.items()})


def last_json(out: str) -> Any:
    """What a command with `--json` printed last."""
    return json.loads(out.splitlines()[-1])
