"""vLLM as a peer: its own scheduler and kernels, in one process and on the threads it is told to use."""

from __future__ import annotations

import time
from typing import Any

from peer_loop import Answer, serve
from vllm import LLM, SamplingParams


def load(settings: dict[str, Any]) -> Answer:
    """Load the folder named `model` for at most `max_num_seqs` at once."""
    engine = LLM(
        model=settings["model"],
        dtype="float32",
        max_num_seqs=settings["max_num_seqs"],
        enforce_eager=True,
        enable_prefix_caching=True,
    )

    def answer(lines: list[dict[str, Any]]) -> dict[str, Any]:
        if not engine.reset_prefix_cache():
            raise RuntimeError("the prefix cache could not be emptied")
        prompts = [{"prompt_token_ids": line["token_ids"]} for line in lines]
        sampling = [_greedy(line["max_tokens"]) for line in lines]
        started = time.perf_counter()
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - started
        num_found = sum(output.num_cached_tokens or 0 for output in outputs)
        return {
            "seconds": seconds,
            "token_ids": [list(output.outputs[0].token_ids) for output in outputs],
            "figures": {"prefix hit rate": num_found / sum(len(line["token_ids"]) for line in lines)},
        }

    return answer


def _greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)


if __name__ == "__main__":
    serve(load)
