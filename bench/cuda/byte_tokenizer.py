"""A tokenizer for networks that never learnt one: bytes, and nothing for all other ids."""

from __future__ import annotations

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers

from engine.tokenizer import Tokenizer


def byte_tokenizer() -> Tokenizer:
    """Ids 0 to 255 are the bytes; larger ones add nothing to a text, and no id ends one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fast = FastTokenizer(models.BPE({character: id for id, character in enumerate(alphabet)}, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    return Tokenizer(fast, eos_token_ids=frozenset(), template=None)
