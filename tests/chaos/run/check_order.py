"""The results of every list, as a client reads them: item n answers request n."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx2

from tests.chaos.run.asked import Ask, tags_in
from tests.chaos.run.breach import Breach, Kind


def check_order(http: httpx2.Client, url: str, asks: Sequence[Ask]) -> Iterator[Breach]:
    """Find lists whose results are not those of their requests, in their order."""
    for ask in asks:
        for batch_id in ask.accepted_ids if ask.as_batch else ():
            items = _results(http, f"{url}/batches/{batch_id}/results")
            found = [(item["line"], item["custom_id"], _answered(item)) for item in items]
            wanted = [(number, line.tag, {line.tag}) for number, line in enumerate(ask.lines)]
            wrong = [
                f"{is_so} instead of {should_be}"
                for is_so, should_be in zip(found, wanted, strict=False)
                if is_so[:2] != should_be[:2] or not is_so[2] <= should_be[2]
            ]
            if wrong or len(found) != len(wanted):
                subject = f"{batch_id} has {len(found)} results for {len(wanted)} requests"
                yield Breach(Kind.MISORDERED, subject, wrong)


def _results(http: httpx2.Client, address: str) -> list[dict[str, Any]]:
    """All pages, small ones, so that most lists have several."""
    items: list[dict[str, Any]] = []
    while True:
        after = {"after": items[-1]["line"]} if items else {}
        answer = http.get(address, params={"limit": 10, **after})
        answer.raise_for_status()
        page = answer.json()
        items += page["data"]
        if not page["has_more"]:
            return items


def _answered(item: dict[str, Any]) -> set[str]:
    """Whose texts the answer holds; none for what has no answer."""
    response = item["response"]
    return set() if response is None else tags_in(response["body"]["choices"][0]["text"])
