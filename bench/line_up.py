"""Who takes part: contenders by name, each loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.contender import Contender
from bench.own_engine import OwnEngine
from bench.padded_generate import PaddedGenerate
from bench.transformers_batching import TransformersBatching
from engine.config import EngineConfig
from engine.model import load_network
from engine.network import Network
from engine.tokenizer import Tokenizer

#: Rows of a padded batch at the most.
_MOST_PADDED_ROWS = 32


@dataclass(frozen=True)
class LineUp:
    """Makes contenders for one checkpoint; those that compute with the same weights share them."""

    folder: Path
    config: EngineConfig
    tokenizer: Tokenizer

    def contenders(self, names: Sequence[str]) -> dict[str, Contender]:
        """The contenders of these names, which are those of `CONTENDERS`."""
        return {name: CONTENDERS[name](self) for name in names}

    @cached_property
    def network(self) -> Network:
        return load_network(self.folder)

    @cached_property
    def transformers_model(self) -> Any:
        """transformers' own, with the attention it takes by itself."""
        return AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()

    def own(self, **changes: Any) -> Contender:
        config = replace(self.config, **changes)
        network = self.network if config.quantize is None else load_network(self.folder, quantize="int8")
        return OwnEngine(config, network, self.tokenizer)

    def padded_generate(self) -> Contender:
        batch_size = min(_MOST_PADDED_ROWS, self.config.max_num_seqs)
        return PaddedGenerate(self.transformers_model, batch_size=batch_size)

    def transformers_batching(self) -> Contender:
        return TransformersBatching(
            self.transformers_model,
            max_num_seqs=self.config.max_num_seqs,
            token_budget=self.config.token_budget,
        )


CONTENDERS: dict[str, Callable[[LineUp], Contender]] = {
    "ours": lambda line_up: line_up.own(),
    "static": lambda line_up: line_up.own(batching="static", prefix_caching=False),
    "window": lambda line_up: line_up.own(batching="window"),
    "no-prefix": lambda line_up: line_up.own(prefix_caching=False),
    "int8": lambda line_up: line_up.own(quantize="int8"),
    "generate": lambda line_up: line_up.padded_generate(),
    "transformers-cb": lambda line_up: line_up.transformers_batching(),
}
