from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from safetensors.torch import load_file

from bench.q8_0 import write_q8_0
from engine.conversion import convert_gguf

#: Half a code of the largest weight's 127, and the rounding of the scale to float16.
_LARGEST_ERROR = 0.5 / 127 + 2**-11


def write_one(file: Path, weights: np.ndarray, kind: GGMLQuantizationType | None = None) -> Path:
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_tensor("token_embd.weight", weights, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def read_one(file: Path) -> gguf.ReaderTensor:
    (tensor,) = gguf.GGUFReader(file).tensors
    return tensor


def test_a_group_of_weights_is_a_scale_and_eight_bits_each(tmp_path: Path) -> None:
    weights = np.arange(-31, 33, 2, dtype=np.float32)[None]
    weights[0, 0] = -127

    found = read_one(write_q8_0(write_one(tmp_path / "a", weights), tmp_path / "b"))

    assert found.tensor_type == GGMLQuantizationType.Q8_0
    # 1.0 in float16, and the whole numbers.
    assert found.data[0, :2].tolist() == [0x00, 0x3C]
    assert found.data[0, 2:].view(np.int8).tolist() == [-127, *range(-29, 33, 2)]


def test_four_bit_weights_are_quantised_from_the_numbers_they_stand_for(tmp_path: Path) -> None:
    # Scale 1 and minimum -8 in float16, then two codes a byte: -8 and 7 everywhere.
    packed = np.array([[0x00, 0x3C, 0x00, 0xC8, *[0xF0] * 16]], dtype=np.uint8)
    source = write_one(tmp_path / "a", packed, GGMLQuantizationType.Q4_1)

    found = read_one(write_q8_0(source, tmp_path / "b"))

    # 7 x 127 / 8 is 111.1.
    assert found.data[0, 2:].view(np.int8).tolist() == [-127] * 16 + [111] * 16


def test_everything_but_the_weights_is_copied(tiny_gguf: Path, tmp_path: Path) -> None:
    before = gguf.GGUFReader(tiny_gguf)

    after = gguf.GGUFReader(write_q8_0(tiny_gguf, tmp_path / "tiny.gguf"))

    told = {name: field.contents() for name, field in after.fields.items()}
    assert told.pop("general.file_type") == 7
    expected = {name: field.contents() for name, field in before.fields.items()}
    assert told == {**expected, "GGUF.kv_count": expected["GGUF.kv_count"] + 1}
    assert [each.name for each in after.tensors] == [each.name for each in before.tensors]
    kinds = {each.name: each.tensor_type.name for each in after.tensors}
    assert kinds["blk.0.attn_q.weight"] == kinds["token_embd.weight"] == "Q8_0"
    # Norms, and rows of 48 weights.
    assert kinds["blk.0.attn_norm.weight"] == kinds["blk.0.ffn_down.weight"] == "F32"
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.gguf"]


def test_it_is_the_same_model(tiny_gguf: Path, llama_folder: Path, tmp_path: Path) -> None:
    file = write_q8_0(tiny_gguf, tmp_path / "tiny.gguf")
    (tmp_path / "again").mkdir()

    convert_gguf(file, tmp_path / "again")

    expected = load_file(llama_folder / "model.safetensors")
    found = load_file(tmp_path / "again" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        limit = weights.abs().max() * _LARGEST_ERROR
        assert (found[name] - weights).abs().max() <= limit
    assert any(not torch.equal(found[name], weights) for name, weights in expected.items())
