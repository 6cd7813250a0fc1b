from __future__ import annotations

from tests.api.client import Client
from tests.api.worker import HandWorker


def test_all_allowed_models_are_listed_and_those_alive_named(client: Client, worker: HandWorker) -> None:
    worker.register()

    answer = client.get("/v1/models").get_json()

    assert [(model["id"], model["alive"]) for model in answer["data"]] == [
        ("tiny", True),
        ("org/other", False),
    ]
    assert {model["owned_by"] for model in answer["data"]} == {"headrace"}


def test_a_model_with_a_slash_is_found(client: Client) -> None:
    model = client.get("/v1/models/org/other").get_json()

    assert (model["id"], model["object"]) == ("org/other", "model")


def test_an_unknown_model_is_not_found(client: Client) -> None:
    answer = client.get("/v1/models/org")

    assert (answer.status_code, answer.get_json()["error"]["code"]) == (404, "model_not_found")
