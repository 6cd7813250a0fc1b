"""Small tokenizers of the kinds that models come with."""

from __future__ import annotations

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from engine.tokenizer import Tokenizer


def wrapped(fast: FastTokenizer) -> Tokenizer:
    return Tokenizer(fast, eos_token_ids=frozenset(), template=None)


def sentence_piece(*, strip: bool = False) -> FastTokenizer:
    """A vocabulary of letters in the manner of sentencepiece, with bytes for all the others.

    With `strip` a text loses its first space, as with Llama 2.
    """
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
    stripping = [decoders.Strip(" ", 1, 0)] if strip else []
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *stripping]
    )
    return fast


def word_pieces() -> FastTokenizer:
    """Words and their ends; spaces come of the decoder."""
    fast = FastTokenizer(models.WordPiece({"[UNK]": 0, "head": 1, "##race": 2}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.decoder = decoders.WordPiece()
    return fast
