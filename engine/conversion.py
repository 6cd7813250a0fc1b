"""Turns a GGUF file into a folder that loads in seconds."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from engine.protocol import ModelRefused


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the model's float32 weights, configuration and tokenizer into `folder`.

    Raises ModelRefused if the file's kind of network is one that cannot be read.
    """
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise ModelRefused(f"{file.name} cannot be converted: {error}") from error
    config = model.config
    # The weights are plain numbers from here on; the mark would make loaders expect GGUF again.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    generation = GenerationConfig.from_model_config(config)
    generation.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(_weights(model), folder / "model.safetensors", metadata={"format": "pt"})


def _weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """All that the network keeps, each tensor once: under its first name, as all loaders expect it.

    A head that is the embedding's matrix is left out; one who found the matrix under the head's name
    only would start with an embedding of zeros.
    """
    first_names = {name for name, _ in chain(model.named_parameters(), model.named_buffers())}
    return {name: kept.contiguous() for name, kept in model.state_dict().items() if name in first_names}
