"""transformers' own continuous batching as a contender."""

from __future__ import annotations

import time
from typing import Any

from transformers import ContinuousBatchingConfig

from bench.contender import Run
from bench.padded_generate import greedy_config
from bench.workload import Workload

#: Positions of a page on a CPU.
_PAGE_TOKENS = 32
#: Older releases call a page a block.
_PAGE_FIELD = "page_size" if hasattr(ContinuousBatchingConfig, "page_size") else "block_size"
_NO_EOS = -1
#: How long to wait for one result before looking whether the other side is still there.
_RESULT_SECONDS = 1.0
_STOP_SECONDS = 5.0


class TransformersBatching:
    """Its manager with a length per request, pages for all seats, and its own prefix sharing."""

    def __init__(
        self, model: Any, *, max_num_seqs: int, token_budget: int, page_tokens: int = _PAGE_TOKENS
    ) -> None:
        self._model = model
        self._max_num_seqs = max_num_seqs
        self._token_budget = token_budget
        self._page_tokens = page_tokens

    def run(self, workload: Workload) -> Run:
        longest = max(line.max_tokens for line in workload.lines)
        num_pages = self._max_num_seqs * -(-workload.longest // self._page_tokens)
        # Its `generate_batch` has one length for all, which ragged requests would have to pay for; the
        # manager below it takes a length for each.
        with self._model.continuous_batching_context_manager(
            generation_config=greedy_config(longest),
            continuous_batching_config=ContinuousBatchingConfig(
                **{_PAGE_FIELD: self._page_tokens},
                num_blocks=num_pages,
                max_batch_tokens=self._token_budget,
                max_requests_per_batch=self._max_num_seqs,
            ),
            block=True,
            timeout=_STOP_SECONDS,
        ) as manager:
            started = time.perf_counter()
            self._submit(manager, workload)
            answers = self._collect(manager, len(workload.lines))
            seconds = time.perf_counter() - started
        return Run(seconds, [answers[str(index)] for index in range(len(workload.lines))])

    def _submit(self, manager: Any, workload: Workload) -> None:
        # Sorted as its own `add_requests` does, since that makes the most of shared prefixes.
        order = sorted(enumerate(workload.lines), key=lambda item: item[1].token_ids, reverse=True)
        for index, line in order:
            manager.add_request(
                line.token_ids,
                request_id=str(index),
                max_new_tokens=line.max_tokens,
                eos_token_id=_NO_EOS,
            )

    def _collect(self, manager: Any, num_lines: int) -> dict[str, list[int]]:
        answers: dict[str, list[int]] = {}
        while len(answers) < num_lines:
            result = manager.get_result(timeout=_RESULT_SECONDS)
            if result is None:
                if not manager.is_running():
                    raise RuntimeError(f"it ended after {len(answers)} of {num_lines} lines")
            elif result.error is not None:
                raise RuntimeError(f"line {result.request_id} failed: {result.error}")
            elif result.is_finished():
                answers[result.request_id] = list(result.generated_tokens)
        return answers
