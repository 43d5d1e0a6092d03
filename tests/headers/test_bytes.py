from pathlib import Path

import pytest

from llmcalc import header_bytes, load, read_config
from llmcalc.arch.stored import GGML_NAMES, TYPES
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes.blocks import BLOCKS
from llmcalc.sources.gguf_header import read_header as read_gguf_header
from llmcalc.sources.raw import Tensor
from llmcalc.sources.safetensors import read_header

from .gguf_files import LLAMA, write_llama


def test_by_type_and_in_total() -> None:
    tensors = [Tensor("a", "BF16", (3, 5), ""), Tensor("b", "F32", (), ""), Tensor("c", "BF16", (2,), "")]
    assert header_bytes(tensors) == (38, {"BF16": 34, "F32": 4})
    assert header_bytes([]) == (0, {})
    assert header_bytes([Tensor("q", "Q4_K", (2, 256), "")]).total == 288
    assert header_bytes([Tensor("f", "F4", (3,), "")]).total == 2


def test_types_that_are_not_known() -> None:
    with pytest.raises(UnsupportedFormatError, match="tensor a: the stored type 'Q9'"):
        header_bytes([Tensor("a", "Q9", (1,), "")])
    with pytest.raises(UnsupportedFormatError, match="Q4_K has blocks of 256"):
        header_bytes([Tensor("a", "Q4_K", (2, 100), "")])


def test_the_sizes_are_those_of_the_gguf_package_and_of_our_formats() -> None:
    import gguf

    for kind, (size, item) in gguf.GGML_QUANT_SIZES.items():
        if kind.name != "Q8_1":  # of activations: 40 there, 36 in ggml-common.h
            assert GGML_NAMES[kind.value] == kind.name
            assert TYPES[kind.name] == (size, 8 * item)
    for name, blocks in BLOCKS.items():
        assert TYPES[name.upper()] == (blocks.size, 8 * blocks.item)


@pytest.mark.parametrize("kind", ["", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a_gguf_file_to_the_byte(tmp_path: Path, kind: str) -> None:
    path = write_llama(tmp_path / "a.gguf", kind)
    header = read_gguf_header(path)
    start = -(-header.size // 32) * 32
    total = header_bytes(header.tensors).total
    assert all(header_bytes([tensor]).total % 32 == 0 for tensor in header.tensors)  # no padding between them
    assert start + total == path.stat().st_size


def test_a_safetensors_file_to_the_byte(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    arrays = {"a": np.ones((3, 5), np.float16), "b": np.ones(7, np.int64), "c": np.ones((), np.float32)}
    path = tmp_path / "a.safetensors"
    save_file(arrays, path)
    tensors = read_header(path)
    assert {t.name: t.shape for t in tensors} == {name: array.shape for name, array in arrays.items()}
    size = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert size + header_bytes(tensors).total == path.stat().st_size


def test_components_sum_to_the_whole(tmp_path: Path) -> None:
    from llmcalc.calc.header_parts import component_bytes

    model = load(str(write_llama(tmp_path / "a.gguf", "Q8_0")))
    assert model.tensors is not None
    parts = component_bytes(model.architecture, model.tensors, "gguf")
    assert parts == {
        "decoder": {
            "embeddings": 128 * 2 * 34, "lm_head": 128 * 2 * 34, "norms": 7 * 64 * 4,
            "attention": 3 * (64 + 32 + 32 + 64) * 2 * 34, "mlp": 3 * (96 + 96) * 2 * 34 + 3 * 64 * 3 * 34,
        }
    }  # fmt: skip
    assert sum(size for stack in parts.values() for size in stack.values()) == header_bytes(model.tensors).total


def test_scales_count_where_their_weights_do() -> None:
    from llmcalc.arch.names import stored
    from llmcalc.calc.header_parts import component_bytes

    architecture = read_config(LLAMA)
    plain = [Tensor(t.name, "F8_E4M3", t.shape, "") for t in stored(architecture)]
    scales = [Tensor(f"{t.name}_scale", "F32", (), "") for t in plain if "mlp" in t.name]
    more = [*plain, *scales, Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", (8,), "")]
    parts = component_bytes(architecture, more)
    assert parts["decoder"]["mlp"] == 3 * 3 * 96 * 64 + 9 * 4
    assert parts["beside"] == {"other": 32}
    assert sum(size for stack in parts.values() for size in stack.values()) == header_bytes(more).total
