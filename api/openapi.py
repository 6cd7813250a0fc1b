"""The OpenAPI document, made from the registered routes and the shapes that they read and write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

from flask import Flask
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from werkzeug.routing import Rule

from api.query import Query
from api.replies import ErrorReply

_REF = "#/components/schemas/{model}"
_CONVERTER = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")
_View = TypeVar("_View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route reads and answers."""

    summary: str
    query: type[Query]
    body: tuple[type[BaseModel], ...]
    replies: tuple[type[BaseModel], ...]
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    needs_key: bool = True
    #: In which form it answers, unless with an error.
    media: str = "application/json"
    #: In which form its body comes.
    body_media: str = "application/json"

    @property
    def statuses_of_errors(self) -> tuple[int, ...]:
        """Statuses of its errors, those of every route included."""
        common = (401, 503) if self.needs_key else ()
        return tuple(sorted({*self.errors, *common, 500}))


def operation(
    summary: str,
    *,
    query: type[Query] = Query,
    body: tuple[type[BaseModel], ...] = (),
    replies: tuple[type[BaseModel], ...] = (),
    **more: Any,
) -> Callable[[_View], _View]:
    """Describe a view, of whose bodies and replies one is chosen each time. `more`: fields of Operation."""
    described = Operation(
        summary, query=query, body=body, replies=replies, status=more.pop("status", 200), **more
    )

    def describe(view: _View) -> _View:
        view.operation = described  # type: ignore[attr-defined]
        return view

    return describe


def build_document(app: Flask, *, version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of an app. A route without a description is an error."""
    paths: dict[str, dict[str, Any]] = {}
    described: list[Operation] = []
    for rule in app.url_map.iter_rules():
        found = _operation_of(app.view_functions[rule.endpoint])
        described.append(found)
        path = _CONVERTER.sub(r"{\1}", rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            paths.setdefault(path, {})[method.lower()] = _describe(rule, found)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": version},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": _schemas(described),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation_of(view: Callable[..., Any]) -> Operation:
    found = getattr(view, "operation", None)
    if not isinstance(found, Operation):
        raise TypeError(f"the view {view.__module__}.{view.__name__} has no description: add @operation")
    return found


def _describe(rule: Rule, found: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": rule.endpoint.replace(".", "_"),
        "summary": found.summary,
        "tags": [rule.endpoint.partition(".")[0]],
        "parameters": [*_path_parameters(rule), *_query_parameters(found), *_header_parameters(found)],
        "responses": {
            str(found.status): _answer(found.status, found.replies, found.media),
            **{str(status): _answer(status, (ErrorReply,)) for status in found.statuses_of_errors},
        },
        "security": [{"key": []}] if found.needs_key else [],
    }
    if found.body:
        described["requestBody"] = {"required": True, "content": _content(found.body, found.body_media)}
    return described


def _path_parameters(rule: Rule) -> Iterable[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _CONVERTER.findall(rule.rule)
    ]


def _query_parameters(found: Operation) -> Iterable[dict[str, Any]]:
    schema = found.query.model_json_schema(ref_template=_REF)
    return [
        {"name": name, "in": "query", "required": False, "schema": shape}
        for name, shape in schema.get("properties", {}).items()
    ]


def _header_parameters(found: Operation) -> Iterable[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in found.headers.items()
    ]


def _answer(
    status: int, shapes: tuple[type[BaseModel], ...], media: str = "application/json"
) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    answer["content"] = _content(shapes, media) if shapes else {media: {}}
    return answer


def _content(shapes: tuple[type[BaseModel], ...], media: str) -> dict[str, Any]:
    references = [{"$ref": _REF.format(model=shape.__name__)} for shape in shapes]
    return {media: {"schema": references[0] if len(references) == 1 else {"oneOf": references}}}


def _schemas(described: Iterable[Operation]) -> dict[str, Any]:
    wanted: dict[type[BaseModel], JsonSchemaMode] = {ErrorReply: "serialization"}
    for found in described:
        wanted.update((shape, "validation") for shape in (*found.body, found.query))
        wanted.update((shape, "serialization") for shape in found.replies)
    _, schema = models_json_schema(list(wanted.items()), ref_template=_REF)
    shapes: dict[str, Any] = schema["$defs"]
    return shapes
