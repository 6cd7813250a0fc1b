from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.prefix_order import dispatch_order, main, mixed_lines
from engine.checkpoint import DEMO_MODEL

pytestmark = pytest.mark.usefixtures("one_thread")

#: More than the beginning that decides which lines are alike.
SHARED = "Grade the answer and say why. " * 10


def write_line(number: int, text: str) -> str:
    body = {
        "model": DEMO_MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 3 + number % 3,
        "temperature": 0,
        "ignore_eos": True,
    }
    line = {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line) + "\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Both files, with four lines each."""
    for kind, shared in (("prefix", SHARED), ("conv", "")):
        lines = [write_line(number, f"{shared}{kind} {number}") for number in range(4)]
        (tmp_path / f"bench_{kind}_256.jsonl").write_text("".join(lines))
    return tmp_path


def test_lines_that_begin_alike_come_together_where_the_first_of_them_is(data: Path) -> None:
    drafts = mixed_lines(data)
    is_alike = [SHARED in draft.body["messages"][0]["content"] for draft in drafts]

    order = dispatch_order(drafts)

    first = is_alike.index(True)
    assert sorted(order) == [*range(8)]
    assert [is_alike[line] for line in order] == [*[False] * first, *[True] * 4, *[False] * (4 - first)]
    assert order[:first] == [*range(first)]
    assert len(mixed_lines(data, num_lines=1)) == 2


def test_groups_come_one_after_the_other(data: Path) -> None:
    drafts = mixed_lines(data, num_groups=2)

    order = dispatch_order(drafts)

    groups = [drafts[line].body["messages"][0]["content"][:8] for line in order]
    assert abs(groups.index("School 0") - groups.index("School 1")) >= 2
    for name in ("School 0", "School 1"):
        first = groups.index(name)
        assert groups[first : first + 2] == [name] * 2


def test_both_orders_are_measured_by_turns(
    data: Path, llama_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--repeats", "2", "--max-num-seqs", "2", "--kv-cache-bytes", str(2**22)]

    code = main(["--data", str(data), "--model", str(llama_folder), "--cache-dir", str(data), *sizes])

    out, err = capsys.readouterr()
    assert code == 0, err
    assert [line.partition(" …")[0] for line in err.splitlines() if "…" in line] == [
        "as given",
        "by prefix key",
    ] * 2
    head, _, _, _, given, by_prefix = out.splitlines()[-6:]
    assert head.startswith("8 lines, ")
    assert " and 30 output tokens, " in head
    assert (given.split(" | ")[0], by_prefix.split(" | ")[0]) == ("| as given", "| by prefix key")


def test_without_the_files_it_says_so_in_one_line(
    tmp_path: Path, llama_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path), "--model", str(llama_folder)]) == 2
    assert "bench_prefix_256.jsonl" in capsys.readouterr().err
