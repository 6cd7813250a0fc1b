"""Finds at the door what would fail inside."""

from __future__ import annotations

from engine.protocol import EngineLimits, EngineRequest, RequestRejected

#: Most completions of one request.
MAX_CHOICES = 16


def check_request(request: EngineRequest, limits: EngineLimits, *, vocab_size: int) -> None:
    """Raise RequestRejected if this engine could never run the request."""
    for name in ("adapter", "grammar"):
        if getattr(request, name) is not None:
            raise RequestRejected("unsupported_parameter", f"{name} is not supported by this engine")
    if not request.token_ids:
        raise RequestRejected("empty_prompt", "the prompt has no tokens; send some text")
    if request.max_tokens < 1:
        raise RequestRejected("invalid_parameter", f"max_tokens must be at least 1, not {request.max_tokens}")
    if not 1 <= request.n <= MAX_CHOICES:
        raise RequestRejected("invalid_parameter", f"n must be 1 to {MAX_CHOICES}, not {request.n}")
    if "" in request.stop:
        raise RequestRejected("invalid_parameter", "a stop string must not be empty")
    if min(request.token_ids) < 0 or max(request.token_ids) >= vocab_size:
        raise RequestRejected(
            "invalid_parameter", f"the prompt has token ids outside of this model's 0 to {vocab_size - 1}"
        )
    _check_sampling(request, vocab_size)
    total = len(request.token_ids) + request.max_tokens
    if total > limits.max_model_len:
        raise RequestRejected(
            "context_length_exceeded",
            f"the prompt has {len(request.token_ids)} tokens and asks for {request.max_tokens} more, "
            f"but prompt and completion together may have {limits.max_model_len}",
        )


def _check_sampling(request: EngineRequest, vocab_size: int) -> None:
    sampling = request.sampling
    if sampling.min_tokens > request.max_tokens:
        raise RequestRejected(
            "invalid_parameter",
            f"min_tokens {sampling.min_tokens} is more than the {request.max_tokens} of max_tokens",
        )
    named = {
        "logit_bias": [token for token, _ in sampling.logit_bias],
        "stop_token_ids": sampling.stop_token_ids,
    }
    for name, ids in named.items():
        if max(ids, default=0) >= vocab_size:
            raise RequestRejected(
                "invalid_parameter",
                f"{name} has token id {max(ids)}, but this model's are 0 to {vocab_size - 1}",
            )
