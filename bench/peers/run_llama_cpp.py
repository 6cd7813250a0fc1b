"""llama.cpp's server as a peer: fixed slots, a prompt cache, and a GGUF file."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import xllamacpp
from peer_loop import Answer, serve

#: Tokens of room in each slot beyond the longest line.
_SPARE_TOKENS = 8


def load(settings: dict[str, Any]) -> Answer:
    """Answer from the file `model` with `num_slots` slots on `num_threads` threads.

    Every workload gets a new server, which loads the file in less than a second outside of what is measured:
    nothing else empties its caches for certain.
    """

    def answer(lines: list[dict[str, Any]]) -> dict[str, Any]:
        longest = max(len(line["token_ids"]) + line["max_tokens"] for line in lines)
        server = xllamacpp.Server(_params(settings, num_slot_tokens=longest + _SPARE_TOKENS))
        address = urlsplit(server.listening_address).netloc
        # Twice as many as there are slots, so that none stands empty while its next line is on the way.
        with ThreadPoolExecutor(2 * settings["num_slots"]) as pool:
            started = time.perf_counter()
            replies = list(pool.map(partial(_complete, address), lines))
            seconds = time.perf_counter() - started
        num_found = sum(reply["timings"]["cache_n"] for reply in replies)
        return {
            "seconds": seconds,
            "token_ids": [reply["tokens"] for reply in replies],
            "figures": {"prefix hit rate": num_found / sum(len(line["token_ids"]) for line in lines)},
        }

    return answer


def _params(settings: dict[str, Any], *, num_slot_tokens: int) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_parallel = settings["num_slots"]
    params.n_ctx = settings["num_slots"] * num_slot_tokens
    params.n_threads_http = 2 * settings["num_slots"] + 2
    params.cpuparams.n_threads = settings["num_threads"]
    params.cpuparams_batch.n_threads = settings["num_threads"]
    params.fit_params = False
    params.verbosity = 0
    return params


def _complete(address: str, line: dict[str, Any]) -> dict[str, Any]:
    """One greedy completion of exactly `max_tokens` tokens: with `ignore_eos` the end is never drawn."""
    body = {
        "prompt": line["token_ids"],
        "n_predict": line["max_tokens"],
        "ignore_eos": True,
        "samplers": ["top_k"],
        "top_k": 1,
        "return_tokens": True,
    }
    connection = HTTPConnection(address)
    try:
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        reply: dict[str, Any] = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"the server answered {response.status}: {reply}")
    return reply


if __name__ == "__main__":
    serve(load)
