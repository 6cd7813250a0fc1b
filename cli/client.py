"""An HTTP client of the API, as the client commands need it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx2

from cli.loopback import url_host
from models.errors import HeadraceError, StartupError
from models.settings import Settings

#: How long an answer may take, on top of the time it was asked to wait.
_ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
#: How long a file that has arrived may take to be stored.
_UPLOAD_SECONDS = 300.0


class ApiError(HeadraceError):
    """The API refused a request, with this HTTP status."""

    def __init__(self, code: str, message: str, *, status_code: int | None = None) -> None:
        self.code = code
        self.status_code = status_code
        super().__init__(f"{code}: {message}")

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.status_code is not None and (self.status_code >= 500 or self.status_code == 429)


class ApiUnreachable(HeadraceError):
    """The API cannot be reached."""

    code = "api_unreachable"
    #: As of an ApiError.
    may_pass = True


class Client:
    """Speaks to one Headrace. Raises ApiError for what it refuses, ApiUnreachable when it is not there."""

    def __init__(self, settings: Settings) -> None:
        self._url = api_url(settings)
        # A proxy in the environment is for the outside, and must not be asked for this machine.
        self._http = httpx2.Client(
            base_url=self._url,
            headers={"Authorization": f"Bearer {_key(settings)}"},
            timeout=httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=not _is_loopback(self._url.host),
        )

    def get(
        self, path: str, *, query: Mapping[str, Any] | None = None, wait_seconds: float = 0.0
    ) -> dict[str, Any]:
        """Read a resource, in a request that the server may hold open for `wait_seconds`."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if wait_seconds > 0:
            given["wait"] = f"{wait_seconds:g}"
        timeout = httpx2.Timeout(_ANSWER_SECONDS + wait_seconds, connect=_CONNECT_SECONDS)
        return self._send("GET", path, params=given, timeout=timeout)

    def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Send a body, or none, and return the answer."""
        key = _sendable(idempotency_key or "", "--idempotency-key")
        headers = {"Idempotency-Key": key} if key else {}
        return self._send("POST", path, json=body, headers=headers)

    def upload(
        self, path: str, files: Mapping[str, tuple[str, BinaryIO]], fields: Mapping[str, str]
    ) -> dict[str, Any]:
        """Send a form with files, as (filename, file), read piece by piece, and return the answer."""
        timeout = httpx2.Timeout(_UPLOAD_SECONDS, connect=_CONNECT_SECONDS)
        return self._send("POST", path, files=files, data=dict(fields), timeout=timeout)

    @contextmanager
    def stream(self, path: str, *, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        """Read a resource of bytes piece by piece. A connection that breaks on the way is ApiUnreachable."""
        with self._told(), self._http.stream("GET", quote(path), headers=headers) as answer:
            if not answer.is_success:
                answer.read()
                self._read(answer)
            yield answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        with self._told():
            return self._read(self._http.request(method, quote(path), **options))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TimeoutException as error:
            raise ApiUnreachable(f"{self._url} does not answer in time; try again") from error
        except httpx2.HTTPError as error:
            raise ApiUnreachable(f"cannot reach {self._url} ({error}); is `headrace up` running?") from error

    def _read(self, answer: httpx2.Response) -> dict[str, Any]:
        try:
            value = answer.json()
        except ValueError:
            value = None
        if answer.is_success and isinstance(value, dict):
            return value
        if isinstance(value, dict) and isinstance(value.get("error"), dict):
            raise _refusal(value, answer.status_code)
        told = f"{self._url} answers {answer.status_code}, not as Headrace does"
        raise ApiError("not_headrace", told, status_code=answer.status_code)


@contextmanager
def starting() -> Iterator[None]:
    """Make StartupError of what the API refuses before anything was begun: exit code 2, not 1."""
    try:
        yield
    except (ApiError, ApiUnreachable) as error:
        raise StartupError(error.message) from error


def api_url(settings: Settings) -> httpx2.URL:
    """The base URL of the API, which ends in `/v1`. Raises StartupError for what is no URL."""
    given = settings.api_url or f"http://{url_host(settings.host)}:{settings.port}/v1"
    try:
        url = httpx2.URL(given)
    except httpx2.InvalidURL as error:
        raise StartupError(f"the API's URL {given!r} is not valid: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise StartupError(f"the API's URL {given!r} must look like http://127.0.0.1:8000/v1")
    return url.copy_with(path="/v1") if url.path in {"", "/"} else url


def _refusal(value: Mapping[str, Any], status_code: int) -> ApiError:
    error = value["error"]
    details = value.get("details") or []
    told = [_fault_text(fault) for fault in details] or [str(error.get("message"))]
    return ApiError(error.get("code") or "error", " ".join(told), status_code=status_code)


def _fault_text(fault: Mapping[str, Any]) -> str:
    line = fault.get("line")
    return fault["message"] if line is None else f"requests[{line}]: {fault['message']}"


def _key(settings: Settings) -> str:
    if settings.api_key is not None:
        return _sendable(settings.api_key.get_secret_value(), "HEADRACE_API_KEY")
    path = settings.data_dir / "api_key"
    try:
        # Another encoding's characters are refused below, like all that no header may hold.
        return _sendable(path.read_text(encoding="latin-1").strip(), str(path))
    except OSError as error:
        raise StartupError(
            f"no API key: {path} cannot be read ({error.strerror}); set HEADRACE_API_KEY, "
            "or give the server's folder with --data-dir"
        ) from error


def _sendable(text: str, name: str) -> str:
    """Return what may stand in a header. Raises StartupError, without the text, which may be a secret."""
    if not (text.isascii() and text.isprintable()):
        raise StartupError(f"{name} may hold printable ASCII characters only, and no line breaks")
    return text


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
