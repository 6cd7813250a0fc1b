"""What takes long only the first time."""

from __future__ import annotations

from models.settings import DEMO_MODEL, Settings


def first_start_notice(settings: Settings) -> str | None:
    """Say that the model must be converted before the first answer; None if it was converted already."""
    is_demo = settings.model == DEMO_MODEL
    if not is_demo and not settings.model.endswith(".gguf"):
        return None
    name = DEMO_MODEL if is_demo else settings.model.removesuffix(".gguf").rpartition("/")[2]
    folders = settings.checkpoint_dir.glob(f"{name}-*") if settings.checkpoint_dir.is_dir() else ()
    if any(folder.is_dir() for folder in folders):
        return None
    return f"The first start converts {name}, which takes half a minute or more; later ones are quick."
