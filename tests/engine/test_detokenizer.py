"""Deltas join to the text decoded at once, and none ends inside a character."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer
from engine.stop_scanner import StopScanner
from engine.tokenizer import Tokenizer
from tests.engine.tiny_model import EOS, train_tokenizer

TOKENIZER = Tokenizer(train_tokenizer(), eos_token_ids=frozenset({1}), template=None)
TEXTS = (
    "The wheel turns.",
    "🙂🌊 family: 👩‍👩‍👧‍👦!",
    "안녕하세요 여러분",
    "สวัสดีครับ ยินดีต้อนรับ",
    "mixed 물 🙂 น้ำ é\n\ttail",
)


def encode(text: str) -> list[int]:
    return TOKENIZER.fast.encode(text, add_special_tokens=False).ids


def deltas(
    tokens: list[int], *, prompt: list[int], stop: tuple[str, ...] = (), min_tokens: int = 0
) -> list[str]:
    detokenizer = Detokenizer(TOKENIZER, prompt=prompt, stop=stop, min_tokens=min_tokens)
    texts = []
    for token in tokens:
        texts.append(detokenizer.push(token))
        if detokenizer.stopped:
            return texts
    return [*texts, detokenizer.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_characters_come_whole(text: str) -> None:
    """A character that is spread over tokens comes out as replacement characters."""
    pieces = deltas(encode(text), prompt=encode("Say it: "))

    assert "".join(pieces) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    assert sum(1 for piece in pieces if piece) > 1


@given(tokens=st.lists(st.integers(0, 319), max_size=30), prompt=st.lists(st.integers(0, 319), max_size=12))
def test_any_tokens_give_the_text_decoded_at_once(tokens: list[int], prompt: list[int]) -> None:
    assert "".join(deltas(tokens, prompt=prompt)) == TOKENIZER.decode(tokens)


def test_character_cut_off_at_the_end_shows_only_in_the_last_delta() -> None:
    tokens = encode("ok 🙂")[:-1]

    pieces = deltas(tokens, prompt=[0])

    assert "".join(pieces[:-1]) == "ok "
    assert "".join(pieces) == TOKENIZER.decode(tokens)


def test_prompt_that_ends_inside_a_character_does_not_leak() -> None:
    """The end of the prompt shows up in the completion."""
    half = encode("hidden 🙂")[:-1]

    assert "".join(deltas(encode("seen"), prompt=half)) == "seen"


def test_special_tokens_give_no_text() -> None:
    (end,) = TOKENIZER.fast.encode(EOS, add_special_tokens=False).ids

    assert "".join(deltas([*encode("a"), end, *encode("b")], prompt=[0])) == "ab"


@pytest.mark.parametrize("stop", ["turns", "물", "🙂 น", "\n\t", "The"])
def test_stop_string_cuts_the_text(stop: str) -> None:
    for text in TEXTS:
        pieces = deltas(encode(text), prompt=[0], stop=(stop,))
        assert "".join(pieces) == text.split(stop)[0]


@pytest.mark.parametrize("min_tokens", range(8))
def test_stop_strings_count_after_min_tokens(min_tokens: int) -> None:
    tokens = encode("a") + encode("xyz") * 2
    assert len(tokens) == 7

    text = "".join(deltas(tokens, prompt=[0], stop=("y",), min_tokens=min_tokens))

    assert text == ["ax", "ax", "ax", "axyzx", "axyzx", "axyzx", "axyzxyz", "axyzxyz"][min_tokens]


def test_every_split_of_the_text_gives_the_same() -> None:
    """A stop string across the border of two tokens is missed, or a part of it is let out."""
    text, stop = "xxababac-", "abac"

    for count in range(len(text)):
        for cuts in combinations(range(1, len(text)), count):
            scanner = StopScanner((stop,))
            edges = [0, *cuts, len(text)]
            pieces = [scanner.push(text[a:b]) for a, b in pairwise(edges)]
            assert scanner.found
            assert "".join(pieces) + scanner.flush() == "xxab"


@given(
    text=st.text(alphabet="ab", max_size=14),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), max_size=3),
    cuts=st.sets(st.integers(0, 14)),
)
def test_pieces_do_not_matter_and_nothing_is_taken_back(text: str, stops: list[str], cuts: set[int]) -> None:
    whole = StopScanner(tuple(stops))
    by_letter = "".join([*(whole.push(letter) for letter in text), whole.flush()])

    scanner = StopScanner(tuple(stops))
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [scanner.push(text[a:b]) for a, b in pairwise(edges)]

    assert "".join([*pieces, scanner.flush()]) == by_letter
    assert scanner.found == any(stop in text for stop in stops)
    assert text.startswith(by_letter)
    assert not any(stop in by_letter for stop in stops)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    scanner = StopScanner(("END",))

    assert [scanner.push(piece) for piece in ("one E", "N", "o E", "ND two")] == ["one ", "", "ENo ", ""]
    assert scanner.found
