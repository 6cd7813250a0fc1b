"""The lines of an OpenAI batch file: one request each, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from models.errors import Fault, InvalidRequest
from models.job_error import JobError
from models.request import ENDPOINTS, InferenceBody, estimate_cost, estimate_prompt_tokens
from models.seen_ids import SeenIds
from models.settings import Settings
from models.strict_json import parse_json
from models.tables.job import Lane
from models.validation import JobDraft, read_body

_FIELDS = frozenset({"custom_id", "method", "url", "body"})
_MAX_CUSTOM_ID_CHARACTERS = 512
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: What is told of all faults of a line together; they may quote it.
_MAX_ERROR_CHARACTERS = 10_000
_MAX_SHOWN_CHARACTERS = 100

#: So many characters of two prompts are compared to tell whether they begin alike.
_PREFIX_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no valid request. `line` counts from 0, as in a batch's jobs."""

    line: int
    custom_id: str | None
    faults: tuple[Fault, ...]
    #: Those of the faults that are not the body's: they fail a whole file.
    envelope: tuple[Fault, ...] = ()
    #: What stands under `body`, as far as it is an object.
    body: Mapping[str, Any] | None = None

    @property
    def error(self) -> JobError:
        """All faults as one error."""
        first = InvalidRequest(self.faults)
        message = shortened(" ".join(fault.message for fault in self.faults), _MAX_ERROR_CHARACTERS)
        return JobError(first.code, message, first.param)


class LineReader:
    """Reads the lines of one file, in their order.

    Without an endpoint each line names one of its own, and whatever is wrong concerns that line alone. With
    one, every line has to name it, and all the same model: the first that is named. Of lines with the same
    `custom_id` the first counts; without `seen` that was checked before.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        seen: SeenIds | None = None,
        endpoint: str | None = None,
        model: str | None = None,
    ) -> None:
        self._settings = settings
        # Read once: telling a model's name looks for files.
        self._allowed = settings.allowed_models
        self._seen = seen
        self._endpoint = endpoint
        #: The file's model, once a line has named it.
        self.model = model

    def read(self, line: int, raw: bytes) -> JobDraft | BadLine:
        """Read a line, with its end or without; a wrong one tells all its faults, an empty one too."""
        try:
            value = self._parse(raw.removeprefix(_BYTE_ORDER_MARK) if line == 0 else raw)
        except InvalidRequest as error:
            faults = tuple(self._of_line(fault) for fault in error.faults)
            return BadLine(line, None, faults, envelope=faults)
        envelope = [*self._envelope_faults(value), *self._custom_id_faults(value)]
        content = value.get("body")
        if self._endpoint is not None and isinstance(content, dict):
            envelope += self._model_faults(content)
        body, faults_of_body = self._read_body(value)
        if envelope or body is None:
            body_only = content if isinstance(content, dict) else None
            all_faults = (*envelope, *faults_of_body)
            return BadLine(line, _custom_id(value), all_faults, tuple(envelope), body_only)
        return self._draft(value, line, body)

    def _parse(self, raw: bytes) -> dict[str, Any]:
        max_bytes = self._settings.max_body_bytes
        raw = raw.rstrip(b"\r\n")
        if len(raw) > max_bytes:
            raise _invalid("request_too_large", f"The line is longer than {max_bytes} bytes.")
        if not raw.strip():
            raise _invalid("invalid_json", "The line is empty.")
        value = parse_json(raw)
        if not isinstance(value, dict):
            raise _invalid("invalid_type", "A line must be a JSON object.")
        return value

    def _of_line(self, fault: Fault) -> Fault:
        if self._endpoint is None:
            return fault
        # OpenAI's word for every line that is not a request at all.
        return Fault("invalid_json_line", fault.message.replace("The body", "The line", 1))

    def _envelope_faults(self, value: dict[str, Any]) -> Iterator[Fault]:
        for field in sorted(value.keys() - _FIELDS):
            name = shortened(field, _MAX_SHOWN_CHARACTERS)
            yield Fault("unsupported_parameter", f"{name} is not supported here.", name)
        for name in sorted(_FIELDS - value.keys()):
            yield Fault("missing_required_parameter", f"{name} is required.", name)
        if "method" in value and value["method"] != "POST":
            yield Fault("invalid_value", "method must be POST.", "method")
        if "url" in value:
            yield from self._url_faults(value["url"])
        if "body" in value and not isinstance(value["body"], dict):
            yield Fault("invalid_type", "body must be a JSON object.", "body")

    def _url_faults(self, url: Any) -> Iterator[Fault]:
        endpoint = self._endpoint
        if endpoint is None:
            if not isinstance(url, str) or url not in ENDPOINTS:
                known = ", ".join(ENDPOINTS)
                yield Fault("unknown_endpoint", f"Unknown url {url!r}; known: {known}.", "url")
        elif url != endpoint:
            is_cut = isinstance(url, str) and f"/{url}" == endpoint
            hint = ": the slash at its beginning is missing" if is_cut else ""
            message = f"url must be the endpoint of the batch, {endpoint!r}, not {_shown(url)}{hint}."
            yield Fault("url_mismatch", message, "url")

    def _custom_id_faults(self, value: dict[str, Any]) -> Iterator[Fault]:
        if "custom_id" not in value:
            return
        custom_id = value["custom_id"]
        if not isinstance(custom_id, str) or not 0 < len(custom_id) <= _MAX_CUSTOM_ID_CHARACTERS:
            message = f"custom_id must be a string of 1 to {_MAX_CUSTOM_ID_CHARACTERS} characters."
            yield Fault("invalid_value", message, "custom_id")
        elif self._seen is not None and not self._seen.add(custom_id):
            message = f"custom_id {_shown(custom_id)} is used by an earlier line."
            yield Fault("duplicate_custom_id", message, "custom_id")

    def _model_faults(self, content: dict[str, Any]) -> Iterator[Fault]:
        allowed = self._allowed
        name = content.get("model", allowed[0] if len(allowed) == 1 else None)
        if not isinstance(name, str):
            # A fault of the body.
            return
        if name not in allowed:
            message = f"The model {_shown(name)} is not served here; allowed: {', '.join(allowed)}."
            yield Fault("model_not_found", message, "body.model")
        elif self.model is None:
            self.model = name
        elif name != self.model:
            message = f"A file has one model: this line's is {name!r}, and an earlier one's {self.model!r}."
            yield Fault("model_mismatch", message, "body.model")

    def _read_body(self, value: dict[str, Any]) -> tuple[InferenceBody | None, list[Fault]]:
        endpoint, content = value.get("url"), value.get("body")
        if not isinstance(content, dict) or not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
            return None, []
        try:
            return read_body(endpoint, content, self._allowed), []
        except InvalidRequest as error:
            # With an endpoint the model is the file's matter.
            ours = self._endpoint is None
            return None, [fault for fault in error.faults if ours or fault.code != "model_not_found"]

    def _draft(self, value: dict[str, Any], line: int, body: InferenceBody) -> JobDraft:
        return JobDraft(
            endpoint=value["url"],
            model=body.model,
            body=value["body"],
            cost_tokens=estimate_cost(body, default_max_tokens=self._settings.default_max_tokens),
            num_prompt_tokens=estimate_prompt_tokens(body),
            seed=body.seed,
            lane=Lane.BULK,
            custom_id=value["custom_id"],
            line=line,
            prefix=body.prompt_text[:_PREFIX_CHARACTERS],
        )


def read_batch_lines(path: Path, settings: Settings) -> Iterator[JobDraft | BadLine]:
    """Read a batch file, in its order, as bulk jobs; a line that is wrong is given as a BadLine.

    Only one line is in memory at a time, and none longer than `max_body_bytes`.
    """
    with closing(SeenIds()) as seen, path.open("rb") as file:
        reader = LineReader(settings, seen=seen)
        for line, raw in enumerate(_raw_lines(file, settings.max_body_bytes)):
            yield reader.read(line, raw)


def _raw_lines(file: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    """Yield lines; one that is too long is cut just above the limit."""
    # Room for a byte order mark, and for the two bytes of a line's end.
    while raw := file.readline(max_bytes + 2 + len(_BYTE_ORDER_MARK)):
        rest = raw
        while not rest.endswith(b"\n") and (rest := file.readline(max_bytes)):
            pass
        yield raw


def _custom_id(value: Mapping[str, Any]) -> str | None:
    found = value.get("custom_id")
    return found if isinstance(found, str) and len(found) <= _MAX_CUSTOM_ID_CHARACTERS else None


def shortened(text: str, max_characters: int) -> str:
    """Return a text as it is, or its beginning."""
    return text if len(text) <= max_characters else f"{text[:max_characters]}…"


def _shown(value: Any) -> str:
    """A value in a message, which may be of any length."""
    return shortened(repr(value), _MAX_SHOWN_CHARACTERS)


def _invalid(code: str, message: str) -> InvalidRequest:
    return InvalidRequest([Fault(code, message)])
