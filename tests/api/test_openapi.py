from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from api.openapi import build_document


@pytest.fixture
def document(app: Flask) -> dict[str, Any]:
    found: dict[str, Any] = app.test_client().get("/openapi.json").get_json()
    return found


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from walk(child)
    elif isinstance(value, list):
        for child in value:
            yield from walk(child)


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_route_is_named(document: dict[str, Any]) -> None:
    named = {(method, path) for path, method, _ in operations(document)}

    assert named == {
        ("post", "/v1/jobs"),
        ("get", "/v1/jobs"),
        ("get", "/v1/jobs/{job_id}"),
        ("post", "/v1/jobs/{job_id}/cancel"),
        ("post", "/v1/jobs/{job_id}/retry"),
        ("post", "/v1/batches"),
        ("get", "/v1/batches"),
        ("get", "/v1/batches/{batch_id}"),
        ("post", "/v1/batches/{batch_id}"),
        ("post", "/v1/batches/{batch_id}/cancel"),
        ("post", "/v1/batches/{batch_id}/pause"),
        ("post", "/v1/batches/{batch_id}/resume"),
        ("post", "/v1/batches/{batch_id}/retry"),
        ("get", "/v1/batches/{batch_id}/results"),
        ("post", "/v1/files"),
        ("get", "/v1/files"),
        ("get", "/v1/files/{file_id}"),
        ("get", "/v1/files/{file_id}/content"),
        ("delete", "/v1/files/{file_id}"),
        ("post", "/v1/uploads"),
        ("post", "/v1/uploads/{upload_id}/parts"),
        ("post", "/v1/uploads/{upload_id}/complete"),
        ("post", "/v1/uploads/{upload_id}/cancel"),
        ("get", "/v1/models"),
        ("get", "/v1/models/{model_id}"),
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/metrics"),
        ("get", "/version"),
        ("get", "/openapi.json"),
    }


def test_every_reference_leads_to_a_shape(document: dict[str, Any]) -> None:
    references = {found["$ref"] for found in walk(document) if isinstance(found.get("$ref"), str)}
    shapes = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert references
    assert references <= shapes


def test_every_operation_is_whole(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]

    assert document["openapi"].startswith("3.1")
    assert len(set(ids)) == len(ids)
    for path, _, operation in operations(document):
        in_path = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
        assert in_path == re.findall(r"{(\w+)}", path)
        assert all("description" in answer for answer in operation["responses"].values())
        assert ("401" in operation["responses"]) == path.startswith("/v1/")


def test_query_parameters_and_bodies_are_described(document: dict[str, Any]) -> None:
    listing = document["paths"]["/v1/jobs"]["get"]["parameters"]
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]

    assert [parameter["name"] for parameter in listing] == [
        "status",
        "batch_id",
        "model",
        "code",
        "after",
        "limit",
    ]
    assert [one["$ref"].rpartition("/")[2] for one in body["oneOf"]] == ["JobSubmission", "ListSubmission"]


def test_a_form_says_which_of_its_fields_is_the_file(document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/files"]["post"]["requestBody"]["content"]
    form = document["components"]["schemas"]["FileForm"]
    read = document["paths"]["/v1/files/{file_id}/content"]["get"]["responses"]["200"]

    assert content == {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/FileForm"}}}
    assert form["properties"]["file"]["format"] == "binary"
    assert form["required"] == ["file", "purpose"]
    assert list(read["content"]) == ["application/jsonl"]


def test_an_answer_has_just_the_fields_that_are_described(app: Flask, document: dict[str, Any]) -> None:
    described = document["components"]["schemas"]["Readiness"]

    answer = app.test_client().get("/readyz").get_json()

    assert set(answer) == set(described["properties"]) == set(described["required"])


def test_a_route_without_a_description_is_an_error(app: Flask) -> None:
    bare = Flask("bare", static_folder=None)
    bare.add_url_rule("/bare", view_func=lambda: "")

    with pytest.raises(TypeError, match="has no description"):
        build_document(bare, version="0")
