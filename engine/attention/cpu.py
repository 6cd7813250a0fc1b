"""Attention on the CPU: numba's kernel over the blocks where they lie."""

from __future__ import annotations

import numba
import numpy as np
import torch

from engine.attention import cpu_kernel
from engine.attention.scoring import Scoring
from engine.batch import Batch
from engine.cache import KVCache

_NONE = np.empty(0, dtype=np.float32)


class CpuForward:
    """One step of attention on the CPU, on as many threads as torch uses."""

    def __init__(self, batch: Batch, cache: KVCache) -> None:
        self._cache = cache
        self._slots = batch.slots.numpy()
        self._tables = batch.block_tables.numpy()
        starts = batch.row_starts.numpy()
        owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        lengths = batch.positions.numpy() + 1
        # The longest first, dealt out in turn, so that all threads end together.
        self._rows = (owners, lengths, np.argsort(-lengths, kind="stable"))
        self._num_threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
        # Belongs to the thread that computes, as torch's own count does not.
        numba.set_num_threads(self._num_threads)

    def attend(
        self, layer: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
    ) -> torch.Tensor:
        """Keep keys and values [rows, heads, width], then answer the queries, [rows, H, width]."""
        kept_keys, kept_values = (kept.numpy() for kept in self._cache.layer(layer))
        cpu_kernel.store(_plain(keys), _plain(values), self._slots, kept_keys, kept_values)
        out = torch.empty(query.shape[0], query.shape[1], values.shape[2])
        cpu_kernel.attend(
            _plain(query),
            kept_keys,
            kept_values,
            self._tables,
            self._rows,
            self._scoring(scoring),
            self._num_threads,
            out.numpy(),
        )
        return out

    def _scoring(self, scoring: Scoring) -> tuple[np.float32, int, np.ndarray, np.ndarray]:
        """The kernel's terms: no window is one that reaches over every block."""
        window = scoring.window or self._tables.shape[1] * self._cache.block_size
        softcap = _NONE if scoring.softcap is None else np.array([scoring.softcap], dtype=np.float32)
        sinks = _NONE if scoring.sinks is None else _plain(scoring.sinks)
        return np.float32(scoring.scale), window, softcap, sinks


def _plain(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()
