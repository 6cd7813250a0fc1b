"""Inference requests in OpenAI's shape: what their bodies may hold, and what they ask of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

CHAT_COMPLETIONS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

#: Most stop strings in one request; OpenAI's limit.
MAX_STOP_STRINGS = 4

#: Most completions of one request.
MAX_CHOICES = 16

#: Most tokens that one request may favour or ban.
MAX_LOGIT_BIASES = 1024

#: Completion length of `/v1/completions` when the request names none; OpenAI's default.
COMPLETION_MAX_TOKENS = 16

#: Most tokens that a request may ask for, and the highest cost it can have: what an INTEGER of SQL holds.
MAX_TOKENS = 2**31 - 1

_Text = Annotated[str, StringConstraints(min_length=1)]
_TokenCount = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
#: JSON has no numbers as keys: token ids are written as text there.
_TokenKey = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})$")]
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Penalty = Annotated[float, Field(ge=-2, le=2)]


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

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


#: Fields for which null means the same as leaving them out.
_NULL_IS_DEFAULT = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "min_tokens",
    "n",
)


class InferenceBody(BaseModel):
    """What the bodies of all endpoints share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    #: Sample among so many likeliest tokens; 0 and null mean among all.
    top_k: int | None = Field(default=None, ge=0)
    #: Leave out tokens less likely than this share of the likeliest.
    min_p: float = Field(default=0.0, ge=0, le=1)
    presence_penalty: _Penalty = 0.0
    frequency_penalty: _Penalty = 0.0
    #: Divides the logits of tokens in prompt and completion; 1 is off.
    repetition_penalty: float = Field(default=1.0, gt=0, le=100)
    logit_bias: dict[_TokenKey, _Bias] = Field(default_factory=dict, max_length=MAX_LOGIT_BIASES)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    stop: _Text | Annotated[list[_Text], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list, max_length=64)
    #: Neither the model's own end nor anything in `stop` ends the text before.
    min_tokens: int = Field(default=0, ge=0, le=MAX_TOKENS)
    max_tokens: _TokenCount | None = None
    #: Go on to `max_tokens` even where the model would end.
    ignore_eos: bool = False
    #: The client's own label for its user; kept with the request.
    user: str | None = None
    #: How many completions to make of the prompt.
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    # A known field of OpenAI that is accepted only in the form that changes nothing.
    stream: Literal[False] | None = None

    @field_validator(*_NULL_IS_DEFAULT, mode="before")
    @classmethod
    def _null_is_default(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name is not None:
            return cls.model_fields[info.field_name].get_default(call_default_factory=True)
        return value

    @field_validator("max_tokens", "max_completion_tokens", check_fields=False)
    @classmethod
    def _holds_min_tokens(cls, value: int | None, info: ValidationInfo) -> int | None:
        least = info.data.get("min_tokens", 0)
        if value is not None and value < least:
            raise ValueError(f"a limit must not be below the {least} of min_tokens")
        return value

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

    def token_limit(self, default: int) -> int:
        """The most tokens to generate, with a default for a request that leaves it open."""
        return self.completion_limit or max(self._open_limit(default), self.min_tokens)

    def _open_limit(self, default: int) -> int:
        return default

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """`logit_bias` as pairs of token id and bias."""
        return tuple((int(token), bias) for token, bias in self.logit_bias.items())

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives to tell beside each token's logprob; None where no logprobs are wanted."""
        raise NotImplementedError

    @property
    def prompt_text(self) -> str:
        """All text of the prompt, without any template."""
        raise NotImplementedError


class ChatBody(InferenceBody):
    """Body of `/v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    #: The newer name of `max_tokens`.
    max_completion_tokens: _TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)

    @field_validator("max_completion_tokens")
    @classmethod
    def _is_the_only_limit(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("max_tokens") not in {None, value}:
            raise ValueError("max_tokens is the older name of the same limit and says something else")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _needs_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and not info.data.get("logprobs"):
            raise ValueError("top_logprobs needs logprobs to be true")
        return value

    @property
    def completion_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def prompt_text(self) -> str:
        return "\n".join(message.text for message in self.messages)


class CompletionBody(InferenceBody):
    """Body of `/v1/completions`."""

    prompt: _Text
    #: Logprobs of the tokens, with so many alternatives each.
    logprobs: int | None = Field(default=None, ge=0, le=5)
    echo: Literal[False] | None = None

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    def _open_limit(self, default: int) -> int:
        return min(default, COMPLETION_MAX_TOKENS)

    @property
    def prompt_text(self) -> str:
        return self.prompt


#: Endpoints that a job may name, with the shape of their bodies.
ENDPOINTS: Mapping[str, type[ChatBody] | type[CompletionBody]] = {
    CHAT_COMPLETIONS: ChatBody,
    COMPLETIONS: CompletionBody,
}


def estimate_prompt_tokens(body: InferenceBody) -> int:
    """Estimate the prompt's tokens without a tokenizer: four UTF-8 bytes make about one, and there is one."""
    return max(1, len(body.prompt_text.encode()) // 4)


def estimate_cost(body: InferenceBody, *, default_max_tokens: int) -> int:
    """Estimate prompt and completion tokens of a request; it has one prompt, however many completions."""
    return min(MAX_TOKENS, estimate_prompt_tokens(body) + body.n * body.token_limit(default_max_tokens))
