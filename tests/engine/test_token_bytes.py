"""The bytes of a text's tokens, joined, are the bytes of the text."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from engine.token_bytes import TokenBytes
from engine.tokenizer import Tokenizer
from tests.engine.tiny_model import EOS, train_tokenizer

TEXT = "A wheel,\n물 🙂 แม่น้ำ\x00\u00ad é"


def wrapped(fast: FastTokenizer) -> Tokenizer:
    return Tokenizer(fast, eos_token_ids=frozenset(), template=None)


def sentence_piece() -> FastTokenizer:
    """A vocabulary of letters in the manner of sentencepiece, with bytes for all the others."""
    letters = ["▁", *"Awhel,"]
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    model = models.BPE(
        {name: id for id, name in enumerate(names)},
        [],
        unk_token="<unk>",
        byte_fallback=True,
    )
    fast = FastTokenizer(model)
    fast.normalizer = normalizers.Replace(" ", "▁")
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return fast


def word_pieces() -> FastTokenizer:
    fast = FastTokenizer(models.WordPiece({"[UNK]": 0, "head": 1, "##race": 2}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.decoder = decoders.WordPiece()
    return fast


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
