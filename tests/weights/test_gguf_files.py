"""GGUF files that the gguf package quantizes and writes from small models of many families."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmcalc import read_config, weights

from .small import build, saved

gguf = pytest.importorskip("gguf")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

ARCHES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "olmo2": "olmo2",
    "starcoder2": "starcoder2",
    "cohere2": "cohere2",
    "granite": "granite",
    "gpt_neox": "gptneox",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "qwen2_moe": "qwen2moe",
    "olmoe": "olmoe",
    "glm4_moe": "glm4moe",
    "falcon_h1": "falcon-h1",
}
KEPT = ("ffn_gate_inp", "_norm.weight", "ssm_conv1d")


def tensors(folder: Path) -> dict[str, object]:
    """A saved model's tensors in fp32; the experts of a layer as one."""
    from safetensors.torch import load_file

    experts: dict[str, dict[int, object]] = {}
    out: dict[str, object] = {}
    for path in folder.glob("*.safetensors"):
        for name, tensor in load_file(path).items():
            found = re.fullmatch(r"(.*experts)\.(\d+)(\..*)", name)
            if found:
                experts.setdefault(found[1] + found[3], {})[int(found[2])] = tensor
            else:
                out[name] = tensor
    import torch

    for name, parts in experts.items():
        out[name] = torch.stack([parts[index] for index in sorted(parts)])
    return {name: tensor.float().squeeze().numpy() for name, tensor in out.items()}  # type: ignore[attr-defined]


def write(folder: Path, family: str, layers: int, kind: object) -> int:
    """Quantize and write; the bytes of the file's tensors, read back from it."""
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(known[ARCHES[family]], layers)
    writer = gguf.GGUFWriter(folder / "small.gguf", ARCHES[family])
    for name, data in tensors(folder).items():
        found = table.get_name(name, try_suffixes=(".weight", ".bias"))
        label = found or name
        plain = data.ndim < 2 or not label.endswith("weight") or any(part in label for part in KEPT)  # type: ignore[attr-defined]
        stored = gguf.GGMLQuantizationType.F32 if plain else kind
        writer.add_tensor(label, gguf.quants.quantize(data, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(folder / "small.gguf").tensors)


@pytest.mark.parametrize("family", ARCHES)
def test_files_in_q8_0(family: str, tmp_path: Path) -> None:
    """Every matrix in q8_0, vectors, norms, routers and convolutions in 32 bits."""
    config, _ = saved(build(family), tmp_path)
    size = write(tmp_path, family, int(config["num_hidden_layers"]), gguf.GGMLQuantizationType.Q8_0)  # type: ignore[call-overload]
    assert weights(read_config(config), "q8_0").total_bytes == size
