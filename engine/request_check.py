"""Finds at the door what would fail inside."""

from __future__ import annotations

from engine.protocol import EngineLimits, EngineRequest, RequestRejected


def check_request(request: EngineRequest, limits: EngineLimits, *, vocab_size: int) -> None:
    """Raise RequestRejected if this engine could never run the request."""
    for name in ("adapter", "grammar"):
        if getattr(request, name) is not None:
            raise RequestRejected("unsupported_parameter", f"{name} is not supported by this engine")
    if not request.token_ids:
        raise RequestRejected("empty_prompt", "the prompt has no tokens; send some text")
    if request.max_tokens < 1:
        raise RequestRejected("invalid_parameter", f"max_tokens must be at least 1, not {request.max_tokens}")
    if "" in request.stop:
        raise RequestRejected("invalid_parameter", "a stop string must not be empty")
    if min(request.token_ids) < 0 or max(request.token_ids) >= vocab_size:
        raise RequestRejected(
            "invalid_parameter", f"the prompt has token ids outside of this model's 0 to {vocab_size - 1}"
        )
    total = len(request.token_ids) + request.max_tokens
    if total > limits.max_model_len:
        raise RequestRejected(
            "context_length_exceeded",
            f"the prompt has {len(request.token_ids)} tokens and asks for {request.max_tokens} more, "
            f"but prompt and completion together may have {limits.max_model_len}",
        )
