"""The bytes that a single token stands for. Needs no torch."""

from __future__ import annotations

import re

from engine.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"


class TokenBytes:
    """Maps token ids to bytes, joined those of the text: one character may be spread over tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._fast = tokenizer.fast
        self._added = {
            id: token.content.encode() for id, token in self._fast.get_added_tokens_decoder().items()
        }
        decoder = b"" if self._fast.decoder is None else self._fast.decoder.__getstate__()
        self._is_byte_level = b'"ByteLevel"' in decoder
        self._is_sentence_piece = b'"ByteFallback"' in decoder or b'"Metaspace"' in decoder

    def of(self, token_id: int) -> bytes:
        """The token's bytes; special tokens give their name, ids without a token nothing."""
        if token_id in self._added:
            return self._added[token_id]
        name = self._fast.id_to_token(token_id)
        if name is None:
            return b""
        if self._is_byte_level:
            return b"".join(_byte_of(character) for character in name)
        if self._is_sentence_piece:
            byte = _BYTE_TOKEN.fullmatch(name)
            return bytes.fromhex(byte[1]) if byte else name.replace(_SPACE_MARK, " ").encode()
        return self._fast.decode([token_id], skip_special_tokens=False).encode()


def _byte_of(character: str) -> bytes:
    byte = _BYTES.get(character)
    return character.encode() if byte is None else bytes([byte])


def _byte_alphabet() -> dict[str, int]:
    """The alphabet of byte-level vocabularies: visible Latin-1 stands for itself, others are moved up."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(0x100) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(moved)}


_BYTES = _byte_alphabet()
