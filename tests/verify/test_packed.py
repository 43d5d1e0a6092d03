"""Checkpoints whose weights are packed by a quantizer: the same list of weights, with scales and zeros beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llmcalc.sources.raw import Tensor
from tests.headers.gguf_files import LLAMA

from .test_differences import GPT_OSS, check


def packed(make: Callable[[str, int, int], list[Tensor]]) -> Callable[[list[Tensor]], list[Tensor]]:
    """Every matrix of a block in another form."""

    def change(tensors: list[Tensor]) -> list[Tensor]:
        out: list[Tensor] = []
        for tensor in tensors:
            if "_proj.weight" in tensor.name:
                out += make(tensor.name.removesuffix(".weight"), *tensor.shape)
            else:
                out.append(tensor)
        return out

    return change


def gptq(name: str, rows: int, columns: int) -> list[Tensor]:
    return [
        Tensor(f"{name}.qweight", "I32", (columns * 4 // 32, rows), ""),
        Tensor(f"{name}.qzeros", "I32", (columns // 16, rows * 4 // 32), ""),
        Tensor(f"{name}.scales", "F16", (columns // 16, rows), ""),
        Tensor(f"{name}.g_idx", "I32", (columns,), ""),
    ]


def fp8(name: str, rows: int, columns: int) -> list[Tensor]:
    return [
        Tensor(f"{name}.weight", "F8_E4M3", (rows, columns), ""),
        Tensor(f"{name}.weight_scale_inv", "F32", (1, 1), ""),
    ]


def compressed(name: str, rows: int, columns: int) -> list[Tensor]:
    return [
        Tensor(f"{name}.weight_packed", "I32", (rows, columns * 4 // 32), ""),
        Tensor(f"{name}.weight_scale", "BF16", (rows, columns // 32), ""),
        Tensor(f"{name}.weight_shape", "I64", (2,), ""),
    ]


def nvfp4(name: str, rows: int, columns: int) -> list[Tensor]:
    return [
        Tensor(f"{name}.weight", "U8", (rows, columns // 2), ""),
        Tensor(f"{name}.weight_scale", "F8_E4M3", (rows, columns // 16), ""),
        Tensor(f"{name}.weight_scale_2", "F32", (), ""),
        Tensor(f"{name}.input_scale", "F32", (), ""),
    ]


def nf4(name: str, rows: int, columns: int) -> list[Tensor]:
    return [
        Tensor(f"{name}.weight", "U8", (rows * columns // 2, 1), ""),
        Tensor(f"{name}.weight.absmax", "U8", (rows * columns // 64,), ""),
        Tensor(f"{name}.weight.nested_absmax", "F32", (1,), ""),
        Tensor(f"{name}.weight.quant_map", "F32", (16,), ""),
        Tensor(f"{name}.weight.quant_state.bitsandbytes__nf4", "U8", (200,), ""),
    ]


@pytest.mark.parametrize("make", [gptq, fp8, compressed, nvfp4, nf4])
def test_packed_weights_and_what_lies_beside_them(make: Callable[[str, int, int], list[Tensor]]) -> None:
    found = check(LLAMA, packed(make))
    assert (found.missing, found.unexpected, found.mismatched) == ((), (), ())
    assert len(found.beside) == 21 * (len(make("x", 64, 64)) - 1)
    assert not check(LLAMA, lambda tensors: packed(make)(tensors)[1:]).agrees


def test_packed_weights_of_another_size() -> None:
    def change(tensors: list[Tensor]) -> list[Tensor]:
        return [t._replace(shape=(t.shape[0], t.shape[1] + 1)) if t.name.endswith("1.mlp.up_proj.qweight") else t
                for t in packed(gptq)(tensors)]  # fmt: skip

    assert [m.name for m in check(LLAMA, change).mismatched] == ["model.layers.1.mlp.up_proj.qweight"]


def test_scales_of_nothing_are_unexpected() -> None:
    found = check(LLAMA, lambda tensors: [*tensors, Tensor("model.layers.9.mlp.up_proj.weight_scale", "F32", (), "")])
    assert len(found.unexpected) == 1


def test_gpt_oss_as_it_is_published() -> None:
    def change(tensors: list[Tensor]) -> list[Tensor]:
        out = [t for t in tensors if not t.name.endswith(("experts.gate_up_proj", "experts.down_proj"))]
        for layer in range(3):
            root = f"model.layers.{layer}.mlp.experts"
            out += [
                Tensor(f"{root}.gate_up_proj_blocks", "U8", (4, 192, 2, 16), ""),
                Tensor(f"{root}.gate_up_proj_scales", "U8", (4, 192, 2), ""),
                Tensor(f"{root}.down_proj_blocks", "U8", (4, 64, 3, 16), ""),
                Tensor(f"{root}.down_proj_scales", "U8", (4, 64, 3), ""),
            ]
        return out

    assert check(GPT_OSS, change).agrees
