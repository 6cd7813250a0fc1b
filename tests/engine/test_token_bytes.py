"""The bytes of a text's tokens, joined, are the bytes of the text."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer

from engine.token_bytes import TokenBytes
from tests.engine.tiny_model import EOS, train_tokenizer
from tests.engine.tokenizer_kinds import sentence_piece, word_pieces, wrapped

TEXT = "A wheel,\n물 🙂 แม่น้ำ\x00\u00ad é"


@pytest.mark.parametrize("fast", [train_tokenizer(), sentence_piece()], ids=["byte level", "sentencepiece"])
def test_joined_bytes_are_the_text(fast: FastTokenizer) -> None:
    ids = fast.encode(TEXT, add_special_tokens=False).ids

    pieces = [TokenBytes(wrapped(fast)).of(id) for id in ids]

    assert b"".join(pieces) == TEXT.encode()
    assert all(pieces)
    assert fast.decode(ids) == TEXT


def test_a_token_of_another_kind_is_what_it_decodes_to() -> None:
    assert TokenBytes(wrapped(word_pieces())).of(1) == b"head"


def test_special_tokens_give_their_names_and_no_token_nothing() -> None:
    fast = train_tokenizer()
    fast.add_tokens([AddedToken("Ġwater Ġwheel", special=False)])
    of = TokenBytes(wrapped(fast)).of

    assert of(fast.encode(EOS, add_special_tokens=False).ids[0]) == EOS.encode()
    assert of(fast.get_vocab_size() - 1) == "Ġwater Ġwheel".encode()
    assert of(10**6) == b""
