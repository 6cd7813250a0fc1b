"""Fifty thousand lines, from upload to download, through an engine that answers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.byte_model import make_byte_model
from tests.acceptance.service import Api
from tests.chaos.house import House, chaos_settings
from tests.chaos.part import Cradle
from tests.chaos.result_contract import faults_of_results, input_lines
from tests.worker.waiting import eventually

NUM_LINES = 50_000
#: What an API or background process may grow by while it handles them, on top of the first thousand lines.
_MOST_GROWTH_BYTES = 96 * 2**20


@pytest.fixture
def house(tmp_path: Path, redis_url: str) -> Iterator[House]:
    """A house as it is set up by default, with the marked engine."""
    settings = chaos_settings(
        tmp_path / "data",
        make_byte_model(tmp_path / "bytes"),
        redis_url=redis_url,
        redis_namespace="fifty",
        lease_seconds=30.0,
        max_jobs=256,
        max_wait_seconds=0.02,
        max_num_seqs=256,
        api_threads=32,
    )
    with Cradle(tmp_path) as cradle, House(settings, cradle) as found:
        yield found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_thousand_lines_in_and_out(house: House, record_figure: Callable[[str], None]) -> None:
    api_part = house.start("api", port=0)
    api = house.client_of(api_part)
    house.start_worker()
    background = house.start("background")
    _run(api, house, 1000)
    before = {part.pid: _resident_bytes(part.pid) for part in (api_part, background)}

    seconds, batch, texts = _run(api, house, NUM_LINES)

    assert batch["request_counts"] == {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
    assert faults_of_results(api, batch, texts) == []
    growth = {pid: _resident_bytes(pid) - before[pid] for pid in before}
    record_figure(
        f"50,000 lines: {seconds:.0f} s from upload to download ({NUM_LINES / seconds:.0f} lines/s); "
        f"api grew by {growth[api_part.pid] / 1e6:.0f} MB to {_resident_bytes(api_part.pid) / 1e6:.0f}, "
        f"background by {growth[background.pid] / 1e6:.0f} MB to {_resident_bytes(background.pid) / 1e6:.0f}"
    )
    assert max(growth.values()) < _MOST_GROWTH_BYTES


def _run(api: Api, house: House, num_lines: int) -> tuple[float, dict[str, Any], list[str]]:
    texts = [house.prompt() for _ in range(num_lines)]
    content = input_lines(texts, model=house.settings.served_name)
    began_at = time.monotonic()
    file = api.http.post("/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)}).json()
    order = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    batch_id = api.http.post("/batches", json=order).json()["id"]
    ends = ("completed", "failed", "expired")
    eventually(lambda: api.get(f"/batches/{batch_id}")["status"] in ends, within_seconds=1800)
    batch = api.get(f"/batches/{batch_id}")
    with api.http.stream("GET", f"/files/{batch['output_file_id']}/content") as answer:
        num_bytes = sum(len(piece) for piece in answer.iter_bytes())
    assert num_bytes
    return time.monotonic() - began_at, batch, texts


def _resident_bytes(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)
