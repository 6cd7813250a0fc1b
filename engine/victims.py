"""Who gives up seat and blocks, and for whom."""

from __future__ import annotations

from collections.abc import Sequence as Several

from engine.sequence import Sequence


def longest_victim(running: Several[Sequence]) -> Sequence | None:
    """Who gives up its blocks when memory runs short: of the least urgent ones, the longest.

    It has the most to give, and the others get furthest with it. Whoever is sheltered comes last. The
    oldest of the most urgent is never chosen, so that somebody always gets to its end. None if there is
    nobody else.
    """
    oldest = min(running, key=lambda each: each.order, default=None)
    others = [each for each in running if each is not oldest]
    return max(others, key=lambda each: (each.order[:2], each.num_known_tokens, each.arrival), default=None)


def outranked(running: Several[Sequence], candidate: Sequence) -> list[Sequence]:
    """Those who must yield to a more urgent one; the last of the list is to go first.

    That is the least urgent, and of several the latest, which has the least to lose.
    """
    lower = [each for each in running if each.yields_to(candidate.priority)]
    return sorted(lower, key=lambda each: each.order)
