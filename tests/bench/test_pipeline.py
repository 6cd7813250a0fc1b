"""The harness as a whole, and on the way every failpoint: one small run of real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.pipeline.__main__ import main
from models.failpoints import JOB_POINT_NAMES


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run has left: `pipeline.json`, and the hits of all failpoints, which do no more than count."""
    folder = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OUT", str(folder))
        patch.setenv("HEADRACE_FAIL", ",".join(f"{name}:sleep=0" for name in JOB_POINT_NAMES))
        patch.setenv("HEADRACE_ALLOW_FAILPOINTS", "1")
        patch.setenv("HEADRACE_FAIL_DIR", str(folder / "hits"))
        # A list of 20 finds room for 8, and the dispatcher publishes the rest.
        patch.setenv("HEADRACE_DISPATCH_WINDOWS", "1")
        patch.setenv("HEADRACE_MAX_JOBS", "8")
        few = ["--jobs=20", "--list-size=20", "--connections=2", "--repeats=1"]
        assert main(["--databases=sqlite", *few]) == 0
    return folder


@pytest.mark.parametrize("name", JOB_POINT_NAMES)
def test_every_failpoint_is_on_a_jobs_way(out: Path, name: str) -> None:
    assert (out / "hits" / f"{name}.hits").read_bytes().startswith(b".")


def test_each_way_to_hand_in_is_measured(out: Path) -> None:
    found = json.loads((out / "pipeline.json").read_text())

    rows = {(row["database"], row["way"]): row["runs"] for row in found["rows"]}
    assert rows.keys() == {("sqlite", "one by one"), ("sqlite", "lists of 20")}
    for (run,) in rows.values():
        assert run["num_jobs"] == 20
        assert 0 < run["median_seconds"] <= run["p95_seconds"]
        assert run["accepted_per_second"] > 0
        assert run["done_per_second"] > 0
        assert run["cpu_milliseconds"].keys() >= {"api", "worker"}
