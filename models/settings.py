"""Every setting of Headrace, with its unit and default.

A value comes from, first found: a command's flag, the environment (`HEADRACE_<NAME>`, also from `.env`),
`headrace.toml` in the working folder, the default here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from models.engine_settings import EngineSettings
from models.errors import StartupError

DEMO_MODEL = "smollm2-135m-instruct"

PREFIX = "HEADRACE_"


class Profile(NamedTuple):
    """Three limits that belong together: the window's size and patience, and the engine's seats."""

    max_jobs: int
    max_wait_seconds: float
    max_num_seqs: int


PROFILES: Mapping[str, Profile] = {
    "latency": Profile(max_jobs=16, max_wait_seconds=0.0, max_num_seqs=16),
    "balanced": Profile(max_jobs=64, max_wait_seconds=0.02, max_num_seqs=64),
    "throughput": Profile(max_jobs=256, max_wait_seconds=0.25, max_num_seqs=256),
}


class Settings(EngineSettings):
    """The settings of one process, read once and never changed."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        toml_file="headrace.toml",
        frozen=True,
        extra="ignore",
        env_ignore_empty=True,
        protected_namespaces=(),
    )

    #: Folder for everything that Headrace keeps on this machine.
    data_dir: Path = Path("~/.local/share/headrace")
    #: SQLAlchemy URL; default: a SQLite file in the data folder.
    database_url: str | None = None
    #: Where files are kept: a folder, or a URL of any kind that fsspec knows, as `s3://bucket/folder`;
    #: default: `files` in the data folder.
    files_url: str | None = None
    #: Redis URL; default: the embedded Valkey that `headrace up` and `headrace run` start.
    redis_url: str | None = None
    #: First part of every Redis key, so that several installations can share a server.
    redis_namespace: str = "headrace"

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    #: Base URL of the client commands; default: host and port.
    api_url: str | None = None
    #: Key of the client commands, and of the default project when the server starts first.
    api_key: SecretStr | None = None
    #: Threads of the API; a long-poll holds one while it waits.
    api_threads: int = Field(default=256, ge=1)
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)  #: Largest accepted request body.
    max_list_requests: int = Field(default=10_000, ge=1)  #: Most requests in one inline list.
    #: Largest file, and most requests in one; OpenAI's limits.
    max_file_bytes: int = Field(default=200 * 2**20, ge=1024)
    max_batch_requests: int = Field(default=50_000, ge=1)
    #: How long an input file is kept whose `expires_after` is not given; OpenAI's 30 days.
    file_seconds: float = Field(default=30 * 86400.0, gt=0)
    max_poll_seconds: float = Field(default=60.0, gt=0)  #: Longest time that `?wait=` may take.

    #: The demo model, a hub id, a folder of a checkpoint, or a GGUF file.
    model: str = DEMO_MODEL
    served_model_name: str | None = None
    #: Model names that accept allows, separated by commas; default: the served one.
    models: str | None = None

    profile: Literal["latency", "balanced", "throughput"] = "balanced"
    #: Most jobs in a window (default: the profile's).
    max_jobs: int | None = Field(default=None, ge=1)
    #: How long a window's oldest job waits for company (default: the profile's).
    max_wait_seconds: float | None = Field(default=None, ge=0)
    #: Most sequences computed in one step (default: the profile's).
    max_num_seqs: int | None = Field(default=None, ge=1)
    #: Completion length of a chat that names none; completions have OpenAI's 16.
    default_max_tokens: int = Field(default=1024, ge=1)

    #: Entries that a lane keeps in Redis, in windows; the rest waits in SQL, where order is still open.
    dispatch_windows: int = Field(default=3, ge=1)
    lease_seconds: float = Field(default=30.0, gt=0)
    #: Pause of a job, and up to half as long again, after a crash of a worker that ran nothing else.
    crash_backoff_seconds: float = Field(default=30.0, ge=0)
    #: The same after an error of the engine that may not come again; each further one doubles it.
    retry_backoff_seconds: float = Field(default=2.0, ge=0)
    #: A worker whose step takes longer counts as hung and is killed; a new engine may take five times that.
    max_step_seconds: float = Field(default=120.0, gt=0)
    #: Jobs that wait while none is taken and no engine computes for so long count as stuck. Not below two
    #: heartbeats, which tell that an engine computes.
    stuck_seconds: float = Field(default=60.0, ge=15)
    #: How long a worker that was told to stop goes on with what it runs, before it gives the rest back.
    drain_seconds: float = Field(default=10.0, ge=0)

    #: How long an Idempotency-Key is remembered, at least.
    idempotency_seconds: float = Field(default=86400.0, gt=0)
    #: How long it is kept which window a job was in.
    history_seconds: float = Field(default=30 * 86400.0, gt=0)

    log_format: Literal["auto", "console", "json"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("data_dir")
    @classmethod
    def _expand(cls, value: Path) -> Path:
        try:
            return value.expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(f"{value} names no user's folder") from error

    @model_validator(mode="after")
    def _own_model_is_allowed(self) -> Settings:
        if self.models is not None and self.served_name not in self.allowed_models:
            raise ValueError(f"models must contain the served model {self.served_name!r}")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def sql_url(self) -> str:
        """The database's URL; a bare `postgresql://` gets the driver we ship."""
        if self.database_url is None:
            return sqlite_url(self.data_dir / "headrace.db")
        if self.database_url.startswith(("postgresql://", "postgres://")):
            return "postgresql+psycopg://" + self.database_url.partition("://")[2]
        return self.database_url

    @property
    def blob_url(self) -> str:
        """Where the bytes of files are, as a folder or a URL of fsspec."""
        return self.files_url if self.files_url is not None else str(self.data_dir / "files")

    @property
    def queue_url(self) -> str:
        """The URL of Redis. Raises StartupError where none is set."""
        if self.redis_url is None:
            raise StartupError(
                "no Redis: `headrace up` starts an embedded one; or set HEADRACE_REDIS_URL to one of yours"
            )
        return self.redis_url

    @property
    def served_name(self) -> str:
        """The model's name on the wire: a hub id as it is, else the folder's or file's name."""
        if self.served_model_name is not None:
            return self.served_model_name
        path = Path(self.model).expanduser()
        if not path.exists():
            return self.model
        return path.stem if path.is_file() else path.resolve().name

    @property
    def allowed_models(self) -> tuple[str, ...]:
        """Model names that accept allows."""
        if self.models is None:
            return (self.served_name,)
        return tuple(name.strip() for name in self.models.split(",") if name.strip())

    @property
    def limits(self) -> Profile:
        """The profile's limits, with those that were set alone put in their place."""
        own = {name: getattr(self, name) for name in Profile._fields}
        return PROFILES[self.profile]._replace(**{k: v for k, v in own.items() if v is not None})

    @property
    def dispatch_depth(self) -> int:
        """How many entries a lane keeps in Redis at most."""
        return self.dispatch_windows * self.limits.max_jobs

    @property
    def checkpoint_dir(self) -> Path:
        """Where converted checkpoints are kept."""
        return self.data_dir / "models"

    def as_environment(self) -> dict[str, str]:
        """Return the variables that give a child process these very settings."""
        found: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                plain = value.get_secret_value() if isinstance(value, SecretStr) else value
                found[PREFIX + name.upper()] = str(plain)
        return found


def sqlite_url(file: Path) -> str:
    """Return the URL of a SQLite file, whatever characters its path holds."""
    return "sqlite:///" + quote(str(file))


def load_settings(*, bare_urls: bool = False, **flags: Any) -> Settings:
    """Read the settings; a flag that is None counts as not given.

    With `bare_urls`, `DATABASE_URL` and `REDIS_URL` count where Headrace's own are not given. Only the
    server roles do so: a variable meant for another program must never steer `run`, `up` or a test.

    Raises StartupError that names each bad setting.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)
        if bare_urls:
            for name in ("database_url", "redis_url"):
                if getattr(settings, name) is None and os.environ.get(name.upper()):
                    given[name] = os.environ[name.upper()]
            settings = Settings(**given)
    except ValidationError as error:
        raise StartupError(_describe(error)) from error
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"headrace.toml cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise StartupError(f"headrace.toml or .env is not UTF-8: {error}") from error
    return settings


def _describe(error: ValidationError) -> str:
    faults = []
    for fault in error.errors():
        name = PREFIX + "_".join(str(part) for part in fault["loc"]).upper() if fault["loc"] else "settings"
        faults.append(f"{name}: {fault['msg']}")
    return "bad settings: " + "; ".join(faults)
