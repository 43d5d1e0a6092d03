"""Real writers and quantizers on small models of many families: their bytes and ours are the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcalc import read_config, weights

from .small import FAMILIES, build, saved

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

# transformers 5.24 saves these families' router matrices in fp32; the published files (DeepSeek-V3, GLM-5) and so we
# have them in 16 bits, which tests/weights/test_published.py holds to the byte.
FP32_ROUTERS = ("deepseek_v2", "deepseek_v3", "glm4_moe")


def routers(config: dict[str, object]) -> int:
    """Numbers in router matrices, by the small config's own sizes."""
    sparse = int(config["num_hidden_layers"]) - int(config["first_k_dense_replace"])  # type: ignore[call-overload]
    return sparse * int(config["n_routed_experts"]) * int(config["hidden_size"])  # type: ignore[call-overload]


def stored_bytes(model: object) -> int:
    """Bytes of a state dict, shared tensors once."""
    tensors = {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}  # type: ignore[attr-defined]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


@contextlib.contextmanager
def bf16() -> Iterator[None]:
    """What from_pretrained does while it swaps modules: new ones are made in the model's dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("family", FAMILIES)
def test_safetensors_written_by_transformers(family: str, tmp_path: Path) -> None:
    config, size = saved(build(family), tmp_path)
    beyond = 2 * routers(config) if family in FP32_ROUTERS else 0
    assert weights(read_config(config)).total_bytes == size - beyond


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_dtypes(dtype: str, tmp_path: Path) -> None:
    config, size = saved(build("qwen3").to(getattr(torch, dtype)), tmp_path)  # type: ignore[attr-defined]
    assert weights(read_config({**config, "dtype": dtype})).total_bytes == size


FP8 = [
    {"weight_block_size": [128, 128]},
    {"weight_block_size": [32, 64]},
    {"weight_block_size": None, "activation_scheme": "static"},
]
DENSE = (
    "llama",
    "qwen2",
    "qwen3",
    "phi3",
    "cohere2",
    "starcoder2",
    "gpt_neox",
    "lfm2",
    "falcon_h1",
    "mamba2",
    "granite",
)
SPARSE = ("mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "deepseek_v3", "glm4_moe", "qwen3_next", "jamba")


@pytest.mark.parametrize("family", DENSE + SPARSE)
@pytest.mark.parametrize("settings", FP8, ids=["128x128", "32x64", "tensor"])
def test_fp8_modules_of_transformers(family: str, settings: dict[str, object]) -> None:
    if settings["weight_block_size"] is None and family in SPARSE:
        pytest.skip("transformers 5 gives fused gate and up one activation scale, files have one a matrix")
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.utils.quantization_config import FineGrainedFP8Config

    model = build(family, meta=True)
    skipped = [*get_keys_to_not_convert(model), *(model._keep_in_fp32_modules or [])]  # type: ignore[attr-defined]
    with bf16():
        replace_with_fp8_linear(model, skipped, FineGrainedFP8Config(**settings), pre_quantized=True)
    config = model.config.to_dict()  # type: ignore[attr-defined]
    beyond = 2 * routers(config) if family in FP32_ROUTERS else 0
    found = weights(read_config({**config, "quantization_config": {"quant_method": "fp8", **settings}}))
    assert found.total_bytes == stored_bytes(model) - beyond
    assert sum(part.value for part in found.figure.parts) == found.total_bytes


@pytest.mark.parametrize(
    "skip", [["lm_head", "down_proj"], ["model.layers.1"], ["model.layers.*.self_attn", "lm_head"]]
)
def test_fp8_skip_lists(skip: list[str]) -> None:
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
    from transformers.utils.quantization_config import FineGrainedFP8Config

    settings = {"weight_block_size": [128, 128], "modules_to_not_convert": skip}
    model = build("llama", meta=True)
    with bf16():
        replace_with_fp8_linear(model, skip, FineGrainedFP8Config(**settings), pre_quantized=True)
    config = model.config.to_dict()  # type: ignore[attr-defined]
    found = weights(read_config({**config, "quantization_config": {"quant_method": "fp8", **settings}}))
    assert found.total_bytes == stored_bytes(model)
    assert not found.warnings


def test_bitnet_modules_of_transformers() -> None:
    from transformers.integrations.bitnet import replace_with_bitnet_linear
    from transformers.utils.quantization_config import BitNetQuantConfig

    model = build("llama", meta=True)
    with bf16():
        settings = BitNetQuantConfig()
        made = replace_with_bitnet_linear(model, modules_to_not_convert=["lm_head"], quantization_config=settings)
    for name, module in made.named_modules():
        if type(module).__name__ == "BitLinear":
            module.weight_scale = module.weight_scale.to(torch.bfloat16)
            assert "lm_head" not in name
    config = {**made.config.to_dict(), "quantization_config": {"quant_method": "bitnet"}}
    assert weights(read_config(config)).total_bytes == stored_bytes(made)


def test_mxfp4_modules_of_transformers() -> None:
    from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

    model = build("gpt_oss", meta=True)
    for name, module in list(model.named_modules()):  # type: ignore[attr-defined]
        if name.endswith(".experts"):
            with torch.device("meta"):
                made = Mxfp4GptOssExperts(model.config)  # type: ignore[attr-defined]
            for bias in ("gate_up_proj_bias", "down_proj_bias"):  # fp32 until from_pretrained loads the model's dtype
                setattr(made, bias, torch.nn.Parameter(getattr(module, bias)))
            model.set_submodule(name, made)  # type: ignore[attr-defined]
    config = {**model.config.to_dict(), "quantization_config": {"quant_method": "mxfp4"}}  # type: ignore[attr-defined]
    packed = [t for t in model.state_dict().values() if t.dtype == torch.uint8]  # type: ignore[attr-defined]
    scales = sum(tensor.numel() // 16 for tensor in packed)  # loaded, they live outside of the module: one for 16 bytes
    assert weights(read_config(config)).total_bytes == stored_bytes(model) + scales
