"""Vocabularies with a token for every byte: any bytes give text, and what came out stays."""

from __future__ import annotations

from itertools import combinations, groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers

from engine.detokenizer import Detokenizer
from engine.tokenizer import Tokenizer
from tests.engine.tokenizer_kinds import sentence_piece, word_pieces, wrapped
from tests.examples import examples

HALF = "\N{REPLACEMENT CHARACTER}"
PIECES, STRIPPING = wrapped(sentence_piece()), wrapped(sentence_piece(strip=True))
#: Of `sentence_piece`: byte b is token b + 1, and after all bytes come the letters.
SPACE, A, W = 257, 258, 259

any_tokens = st.lists(
    st.sampled_from([1 + byte for byte in "€\n🙂".encode()] + [SPACE, A, W]) | st.integers(0, 263),
    max_size=14,
)


def bytes_of(text: bytes) -> list[int]:
    return [1 + byte for byte in text]


def deltas(
    tokenizer: Tokenizer, tokens: list[int], *, prompt: list[int], stop: tuple[str, ...] = ()
) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt=prompt, stop=stop)
    return [*map(detokenizer.push, tokens), detokenizer.flush()]


@pytest.mark.parametrize("text", ["wheel 물이 흐른다", "น้ำ🙂\nA", "\n\n€ A"])
@pytest.mark.parametrize("tokenizer", [PIECES, STRIPPING], ids=["plain", "stripping"])
def test_characters_of_several_byte_tokens_come_whole(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.fast.encode(text).ids

    pieces = deltas(tokenizer, tokens, prompt=[*bytes_of("말해 봐".encode()), A])

    assert "".join(pieces) == text
    assert not any(HALF in piece for piece in pieces)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([*bytes_of(b"\n\xf0\x9f"), A], f"\n{HALF}{HALF}A"),
        ([*bytes_of("€".encode() + b"\xff"), W, A], f"€{HALF}wA"),
        ([*bytes_of("€".encode() + b"\xff")], f"€{HALF}"),
        ([A, *bytes_of(b"\x80"), SPACE, W], f"A{HALF} w"),
        ([*bytes_of(b"\xe2\x82"), W, *bytes_of("€".encode())], f"{HALF}{HALF}w€"),
    ],
)
def test_bytes_that_make_no_character_do_not_fail_the_request(tokens: list[int], expected: str) -> None:
    """Such bytes after a whole character fail the request, and those at its end garble it."""
    assert "".join(deltas(PIECES, tokens, prompt=[A])) == expected


def as_it_comes(tokens: list[int]) -> str:
    """A run of bytes is text as far as it makes whole characters; each byte after that is half of one."""
    text = ""
    for is_byte, run in groupby(tokens, lambda token: 1 <= token <= 256):
        if is_byte:
            raw = bytes(token - 1 for token in run)
            whole = max(end for end in range(len(raw) + 1) if is_text(raw[:end]))
            text += raw[:whole].decode() + HALF * (len(raw) - whole)
        else:
            text += PIECES.decode(list(run))
    return text


def is_text(raw: bytes) -> bool:
    return HALF not in raw.decode(errors="replace")


@settings(max_examples=examples(500), deadline=None)
@given(tokens=any_tokens, prompt=any_tokens.filter(bool))
def test_any_tokens_give_text(tokens: list[int], prompt: list[int]) -> None:
    joined = "".join(deltas(PIECES, tokens, prompt=prompt))

    assert joined == as_it_comes(tokens)
    assert joined == PIECES.decode(tokens) or HALF in joined


@settings(max_examples=examples(200), deadline=None)
@given(tokens=any_tokens, prompt=any_tokens.filter(bool))
def test_only_the_first_space_depends_on_the_prompt(tokens: list[int], prompt: list[int]) -> None:
    at_once = STRIPPING.decode(tokens)

    joined = "".join(deltas(STRIPPING, tokens, prompt=prompt))

    if HALF not in at_once:
        assert joined.removeprefix(" ") == at_once.removeprefix(" ")


def test_first_word_after_a_prompt_in_bytes_keeps_its_space() -> None:
    """A long prompt of single bytes is looked at from the middle of a character."""
    for num_letters in range(1, 9):
        prompt = [A, *bytes_of(("물" * num_letters).encode())]
        assert "".join(deltas(STRIPPING, [SPACE, W], prompt=prompt)) == " w"


def test_prompt_that_ends_in_half_a_character_does_not_leak() -> None:
    for cut in range(1, 4):
        prompt = [A, *bytes_of("🙂".encode()[:cut])]
        assert "".join(deltas(PIECES, [W, A], prompt=prompt)) == "wA"


def test_ids_without_a_token_give_no_text() -> None:
    assert "".join(deltas(PIECES, [A, 264, 10**6, W], prompt=[A])) == "Aw"


def test_words_are_spaced_as_when_decoded_at_once() -> None:
    tokenizer = wrapped(word_pieces())

    assert "".join(deltas(tokenizer, [1, 2, 1, 1, 2], prompt=[1])) == " headrace head headrace"


def all_parts_of(text: bytes) -> FastTokenizer:
    """A byte-level vocabulary of every part of a text."""
    alphabet = bytes_to_names(text)
    parts = [alphabet[first:end] for first, end in combinations(range(len(text) + 1), 2)]
    fast = FastTokenizer(models.BPE({part: id for id, part in enumerate(dict.fromkeys(parts))}, []))
    fast.decoder = decoders.ByteLevel()
    return fast


def bytes_to_names(text: bytes) -> str:
    """How a byte-level vocabulary writes these bytes."""
    ((name, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
        text.decode()
    )
    return name


@pytest.mark.parametrize(("text", "stop"), [("a물물🙂b", "물🙂"), ("ab🙂abac-", "abac"), ("xx\n\ny", "\n\n")])
def test_stop_string_is_found_in_every_split_into_tokens(text: str, stop: str) -> None:
    """A stop string across tokens is missed or let out in part; tokens end inside characters, too."""
    whole = text.encode()
    tokenizer = wrapped(all_parts_of(whole))
    vocabulary = tokenizer.fast.get_vocab()
    names = bytes_to_names(whole)

    for count in range(len(whole)):
        for cuts in combinations(range(1, len(whole)), count):
            edges = [0, *cuts, len(whole)]
            tokens = [vocabulary[names[a:b]] for a, b in pairwise(edges)]
            pieces = deltas(tokenizer, tokens, prompt=tokens, stop=(stop,))
            assert "".join(pieces) == text.split(stop)[0]
            assert not any(HALF in piece for piece in pieces)
