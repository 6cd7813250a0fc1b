"""The roles as processes of their own, with PostgreSQL and redis-server between them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.batch_file import MODEL
from tests.acceptance.eventually import eventually
from tests.acceptance.headrace_command import HeadraceCommand, headrace
from tests.acceptance.service import Api, completion, free_port, is_up
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer

_KEY = "a-key-for-acceptance-tests"


def test_jobs_succeed_on_postgresql_and_redis(
    postgres_server: PostgresServer, redis_server: RedisServer, tiny_model: Path, tmp_path: Path
) -> None:
    database_url, port = postgres_server.create_database(), free_port()
    served = {"HEADRACE_MODEL": str(tiny_model), "HEADRACE_SERVED_MODEL_NAME": MODEL}
    # The bare names, as hosting platforms give them: they count for the roles.
    env = {"DATABASE_URL": database_url, "REDIS_URL": redis_server.url, **served}
    prompts = [f"Mill {n}" for n in range(50)]
    assert headrace("migrate", folder=tmp_path, **env).exit_code == 0

    with ExitStack() as stack:
        api_env = env | {"HEADRACE_API_KEY": _KEY}
        place: list[str | Path] = ["--port", str(port), "--data-dir", tmp_path / "data"]
        stack.enter_context(HeadraceCommand(["api", *place], tmp_path, api_env))
        stack.enter_context(HeadraceCommand(["worker", "--data-dir", tmp_path / "data"], tmp_path, env))
        api = Api(f"http://127.0.0.1:{port}/v1", _KEY)
        stack.callback(api.close)
        eventually(lambda: is_up(api), what="an answer of the API")
        batch = api.submit({"requests": [completion(prompt) for prompt in prompts]})
        results = api.results(batch["id"])
        single = api.finish(api.submit(completion(prompts[0]))["id"])
        counts = api.get(f"/batches/{batch['id']}")["request_counts"]

    postgres_server.drop_database(database_url)
    assert {item["status"] for item in results} == {"succeeded"}
    assert counts == {"total": 50, "completed": 50, "failed": 0}
    assert single["response"]["body"]["choices"] == results[0]["response"]["body"]["choices"]
