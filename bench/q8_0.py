"""A GGUF file with the same weights in Q8_0: eight bits each, with one scale for 32 of them."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType, GGUFValueType, LlamaFileType
from gguf.quants import dequantize, quantize

_Q8_0 = GGMLQuantizationType.Q8_0
_GROUP = 32
_FILE_TYPE = "general.file_type"
#: The writer states these itself.
_WRITTEN_BY_ITSELF = ("GGUF.", "general.architecture", _FILE_TYPE)


def write_q8_0(source: Path, target: Path) -> Path:
    """Write the model in `source` again, with every matrix in Q8_0 and all else in float32.

    Each matrix is quantised from the float32 numbers that the source's own format stands for, which are
    the weights of a checkpoint that was converted from it. A matrix whose rows are no whole groups of 32
    stays float32. Names, metadata and tokenizer are copied. The file appears whole or not at all.
    """
    reader = gguf.GGUFReader(source)
    unfinished = target.with_name(f".{target.name}-{os.getpid()}")
    writer = gguf.GGUFWriter(unfinished, _text(reader, "general.architecture"))
    try:
        _copy_metadata(reader, writer)
        for tensor in reader.tensors:
            _add_tensor(writer, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith(_WRITTEN_BY_ITSELF):
            continue
        kind = field.types[0]
        items = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, items)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)


def _add_tensor(writer: gguf.GGUFWriter, tensor: gguf.ReaderTensor) -> None:
    weights = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if weights.ndim == 2 and weights.shape[1] % _GROUP == 0:
        writer.add_tensor(tensor.name, quantize(weights, _Q8_0), raw_dtype=_Q8_0)
    else:
        writer.add_tensor(tensor.name, weights)


def _text(reader: gguf.GGUFReader, name: str) -> str:
    return str(reader.fields[name].contents())
