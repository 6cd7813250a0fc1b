"""What a worker may ask of an engine, and what it gets back. Needs no torch.

    EngineError
    ├── RequestRejected   this request cannot run here; the others are unharmed
    ├── EngineLost        the engine's state is gone; build a new one
    │   └── DeviceLost    and the device with it: only a new process can have one
    ├── ModelNotFound     nothing to load under this name
    └── ModelRefused      the model would not be computed exactly; the message says why

A request is added, then `step()` is called while `has_work()`. One thread owns the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

from engine.figures import EngineFigures
from engine.sampling import SamplingParams

RejectionCode = Literal[
    "context_length_exceeded",
    "empty_prompt",
    "duplicate_id",
    "invalid_parameter",
    "unsupported_parameter",
]


#: Why a request that was running ended with an error. What was out of memory may fit another time.
FailureCode = Literal["out_of_memory", "engine_error"]


class EngineError(Exception):
    """Something the engine cannot go on with; the message says what and how to mend it."""


class RequestRejected(EngineError):
    """The engine will not run this request; `code` says why in one stable word."""

    def __init__(self, code: RejectionCode, message: str) -> None:
        super().__init__(message)
        self.code: RejectionCode = code


class EngineLost(EngineError):
    """A step failed as a whole: every request inside is gone and the engine must be rebuilt."""


class DeviceLost(EngineLost):
    """The device refuses every further call of this process; a new engine needs a new process."""


class ModelNotFound(EngineError):
    """No model can be loaded under this name."""


class ModelRefused(EngineError):
    """The model was found but would not be computed exactly."""


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One prompt to complete by at most `max_tokens` tokens.

    A lower `priority` runs first. `deadline` is in monotonic seconds; a request that passes
    it ends with what it has. `adapter` and `grammar` are refused for now. Prompts share cached
    blocks only where adapter and `cache_salt` are equal. `n` completions are made, 1 to 16, each
    told by its `choice`; the first draws by the sampling's seed, the others by seeds made of it.

    What greedy requests of one `share_group` ask for alike may be computed once for all of them.
    """

    id: str
    token_ids: Sequence[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    priority: int = 0
    deadline: float | None = None
    adapter: str | None = None
    grammar: str | None = None
    cache_salt: str | None = None
    n: int = 1
    share_group: str | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What the model itself thought of one token: natural logarithms of probabilities.

    They are of the model's raw distribution, before temperature, bias and penalties. `top` are
    pairs of token id and logprob, likeliest first, as many as the request asked for.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """What one step added to one request.

    Outputs are deltas: joined texts are the final text, joined `token_ids` the completion
    tokens to bill. The token that ended the text (EOS or a stop token) is in neither; with
    a stop string all tokens computed so far are in `token_ids`, and the text ends before it.
    `finish_reason` is set in the last output of a choice and only there. `logprobs` has one entry per token
    of `token_ids`, and is None where the request did not ask. `cached_tokens`, the prompt tokens
    that were found in the cache, stand in one output of a request only. `error` and `error_code` say why
    the finish reason is error, for people and in one stable word.
    """

    id: str
    token_ids: tuple[int, ...] = ()
    text: str = ""
    choice: int = 0
    logprobs: tuple[TokenLogprobs, ...] | None = None
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    error: str | None = None
    error_code: FailureCode | None = None


class Room(NamedTuple):
    """What could be added now and start at once: seats, and cache in tokens."""

    seats: int
    cache_tokens: int


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The largest request and the most requests the engine can hold.

    `max_model_len` bounds prompt plus `max_tokens` of one request.
    """

    max_model_len: int
    max_num_seqs: int
    num_cache_tokens: int


class Engine(Protocol):
    """From tokens to tokens, many requests at once."""

    @property
    def limits(self) -> EngineLimits:
        """What the engine can hold."""

    @property
    def device(self) -> str:
        """The kind of device that it computes on, as `cpu` or `cuda`."""

    def add(self, request: EngineRequest) -> None:
        """Take a request in, or raise RequestRejected."""

    def abort(self, id: str) -> None:
        """End a request at the next step, with finish reason cancelled; unknown ids are harmless."""

    def step(self) -> list[EngineOutput]:
        """Compute one step and say what it added.

        What ails one request ends it alone, with finish reason error. Raises EngineLost if the
        engine is gone: then it may not be used any more.
        """

    def room(self, priority: int = 0) -> Room:
        """What is free for requests of this priority, what less urgent ones would yield to them included.

        All others count, those that wait as if they were seated. So of each priority there are never more
        than the engine has seats, for whoever adds no more than there is room. The room of a more urgent
        priority is never the smaller one.
        """

    def ids(self) -> frozenset[str]:
        """The requests that have been added and have not ended."""

    def has_work(self) -> bool:
        """Whether `step()` has anything to do."""

    def figures(self) -> EngineFigures:
        """The cache and the seats now, and what was done so far, as numbers."""
