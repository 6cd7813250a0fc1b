"""Inference requests in OpenAI's shape: what their bodies may hold, and what they ask of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

CHAT_COMPLETIONS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

#: Most stop strings in one request; OpenAI's limit.
MAX_STOP_STRINGS = 4

#: Completion length of `/v1/completions` when the request names none; OpenAI's default.
COMPLETION_MAX_TOKENS = 16

#: Most tokens that a request may ask for, and the highest cost it can have: what an INTEGER of SQL holds.
MAX_TOKENS = 2**31 - 1

_Text = Annotated[str, StringConstraints(min_length=1)]
_TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class TextPart(BaseModel):
    """One part of a message's content."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: _Text | Annotated[list[TextPart], Field(min_length=1)]
    name: str | None = None

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class InferenceBody(BaseModel):
    """What the bodies of all endpoints share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    #: Sample among so many likeliest tokens; 0 and null mean among all.
    top_k: int | None = Field(default=None, ge=0)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    stop: _Text | Annotated[list[_Text], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list, max_length=64)
    max_tokens: _TokenCount | None = None
    #: Go on to `max_tokens` even where the model would end.
    ignore_eos: bool = False
    #: The client's own label for its user; kept with the request.
    user: str | None = None
    # Known fields of OpenAI that are accepted only in the form that changes nothing.
    n: Literal[1] | None = None
    stream: Literal[False] | None = None

    @field_validator("temperature", "top_p", mode="before")
    @classmethod
    def _null_is_default(cls, value: Any) -> Any:
        return 1.0 if value is None else value

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings as a tuple, whichever form the client used."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def completion_limit(self) -> int | None:
        """The most tokens to generate, or None where the request leaves it open."""
        return self.max_tokens

    @property
    def prompt_text(self) -> str:
        """All text of the prompt, without any template."""
        raise NotImplementedError


class ChatBody(InferenceBody):
    """Body of `/v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    #: The newer name of `max_tokens`.
    max_completion_tokens: _TokenCount | None = None
    logprobs: Literal[False] | None = None

    @property
    def completion_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def prompt_text(self) -> str:
        return "\n".join(message.text for message in self.messages)


class CompletionBody(InferenceBody):
    """Body of `/v1/completions`."""

    prompt: _Text
    echo: Literal[False] | None = None

    @property
    def completion_limit(self) -> int:
        return self.max_tokens or COMPLETION_MAX_TOKENS

    @property
    def prompt_text(self) -> str:
        return self.prompt


#: Endpoints that a job may name, with the shape of their bodies.
ENDPOINTS: Mapping[str, type[ChatBody] | type[CompletionBody]] = {
    CHAT_COMPLETIONS: ChatBody,
    COMPLETIONS: CompletionBody,
}


def estimate_cost(body: InferenceBody, *, default_max_tokens: int) -> int:
    """Estimate prompt and completion tokens of a request without a tokenizer.

    Four UTF-8 bytes make about one token; a prompt has at least one.
    """
    prompt_tokens = max(1, len(body.prompt_text.encode()) // 4)
    return min(MAX_TOKENS, prompt_tokens + (body.completion_limit or default_max_tokens))
