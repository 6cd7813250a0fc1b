"""Who takes part: contenders by name, each loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.contender import Contender
from bench.own_engine import OwnEngine
from bench.padded_generate import PaddedGenerate
from bench.peer import Peer
from bench.peer_setup import has_environment, llama_cpp_peer, vllm_peer
from bench.transformers_batching import TransformersBatching
from engine.config import EngineConfig
from engine.model import load_network
from engine.network import Network
from engine.tokenizer import Tokenizer

#: Rows of a padded batch at the most.
_MOST_PADDED_ROWS = 32


@dataclass(frozen=True)
class LineUp:
    """Makes contenders for one checkpoint; those that compute with the same weights share them.

    Those in processes of their own start when they are first asked for, and end with `processes`.
    """

    folder: Path
    config: EngineConfig
    tokenizer: Tokenizer
    processes: ExitStack

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

    @cached_property
    def vllm(self) -> Contender:
        return self._started(vllm_peer)

    @cached_property
    def llama_cpp(self) -> Contender:
        return self._started(llama_cpp_peer)

    def _started(self, set_up: Callable[..., Peer]) -> Contender:
        peer = set_up(self.folder, self.config, num_threads=torch.get_num_threads())
        return self.processes.enter_context(peer)


#: Those that need nothing but our own environment.
_AT_HOME: dict[str, Callable[[LineUp], Contender]] = {
    "ours": lambda line_up: line_up.own(),
    "static": lambda line_up: line_up.own(batching="static", prefix_caching=False),
    "window": lambda line_up: line_up.own(batching="window"),
    "no-prefix": lambda line_up: line_up.own(prefix_caching=False),
    "int8": lambda line_up: line_up.own(quantize="int8"),
    "generate": lambda line_up: line_up.padded_generate(),
    "transformers-cb": lambda line_up: line_up.transformers_batching(),
}

CONTENDERS: dict[str, Callable[[LineUp], Contender]] = {
    **_AT_HOME,
    "vllm": lambda line_up: line_up.vllm,
    "llama.cpp": lambda line_up: line_up.llama_cpp,
}


def ready(names: Iterable[str]) -> list[str]:
    """Those of these names whose environment is there."""
    return [name for name in names if name in _AT_HOME or has_environment(name)]
