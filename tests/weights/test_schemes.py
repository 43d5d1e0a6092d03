"""What a quantization_config says of each module: names, patterns, exceptions, defaults, and what is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import load, read_config, weights
from llmcalc.calc.weights import WeightBytes
from llmcalc.errors import InvalidInputError, LlmcalcError, UnsupportedFormatError
from llmcalc.schemes.rules import Names

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-5,
}  # fmt: skip
ATTENTION = 256 * 256 * 2 + 128 * 256 * 2  # numbers of one layer
MLP = 3 * 256 * 512
TABLE = 512 * 256
NORMS = 9 * 256


def stored(quantization: Mapping[str, object] | None, **more: object) -> WeightBytes:
    config: dict[str, object] = {**LLAMA, **more}
    if quantization is not None:
        config["quantization_config"] = dict(quantization)
    return weights(read_config(config))


def count(found: WeightBytes, name: str) -> int:
    return {form: number for form, number, _ in found.formats}.get(name, 0)


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "entry", "name", "matches"),
    [
        ("transformers", "mlp.gate", "model.layers.0.mlp.gate", True),
        ("transformers", "mlp.gate", "model.layers.0.mlp.gate_proj", False),
        ("transformers", "model.layers.1", "model.layers.11.mlp", False),
        ("transformers", "model.layers.1", "model.layers.1.mlp", True),
        ("transformers", "model.layers.*.self_attn", "model.layers.7.self_attn.q_proj", True),
        ("transformers", "fc1", "model.decoder.layers.2.fc1", True),
        ("transformers", "*.gate", "model.layers.0.mlp.gate", False),
        ("compressed-tensors", "re:.*self_attn.*", "model.layers.0.self_attn.q_proj", True),
        ("compressed-tensors", "model.layers.0", "model.layers.0.self_attn.q_proj", False),
        ("compressed-tensors", "lm_head", "lm_head", True),
        ("wildcard", "model.layers.0*", "model.layers.0.self_attn.q_proj", True),
        ("wildcard", "*.shared_expert.*", "model.layers.3.mlp.shared_expert.up_proj", True),
        ("wildcard", "model.layers.3.mlp.experts", "model.layers.3.mlp.experts.5.up_proj", True),
        ("wildcard", "model.layers.3.mlp.experts", "model.layers.30.mlp.experts.5.up_proj", False),
    ],
)
def test_names(dialect: str, entry: str, name: str, matches: bool) -> None:
    assert Names((entry,), dialect).match((name,)) is matches  # type: ignore[arg-type]


def test_unmatched_entries_are_told() -> None:
    names = Names(("lm_head", "model.layers.0*", "model.layers.9*", "visual"), "wildcard")
    assert names.unmatched(["lm_head", "model.layers.0.mlp.up_proj"]) == ["model.layers.9*", "visual"]


# -- methods -------------------------------------------------------------------------------------------------------


def test_no_quantization_is_the_model_s_own_format() -> None:
    found = stored(None)
    assert found.total_bytes == 2 * (4 * (ATTENTION + MLP) + 2 * TABLE + NORMS)
    assert found.bits_per_weight == 16.0


def test_gptq_leaves_what_its_dynamic_rules_say() -> None:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    found = stored({**base, "dynamic": {r"-:.*\.down_proj": {}, r"+:.*self_attn.*": {"bits": 8, "group_size": 64}}})
    assert count(found, "gptq 4-bit g128") == 4 * 2 * 256 * 512
    assert count(found, "gptq 8-bit g64") == 4 * ATTENTION
    assert count(found, "bf16") == 4 * 512 * 256 + 2 * TABLE + NORMS


def test_gptq_head_only_when_asked() -> None:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}
    assert count(stored(base), "gptq 4-bit g128") == 4 * (ATTENTION + MLP)
    assert count(stored({**base, "lm_head": True}), "gptq 4-bit g128") == 4 * (ATTENTION + MLP) + TABLE


def test_act_order_changes_no_byte() -> None:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    assert stored({**base, "desc_act": True}).total_bytes == stored({**base, "desc_act": False}).total_bytes


def test_modules_in_block_to_quantize() -> None:
    names = [["self_attn.q_proj", "self_attn.k_proj"], ["mlp.up_proj"]]
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": names}
    assert count(stored(base), "gptq 4-bit g128") == 4 * (256 * 256 + 128 * 256 + 512 * 256)


def test_awq_list_adds_to_the_head() -> None:
    base = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
    found = stored({**base, "modules_to_not_convert": ["self_attn"]})
    assert count(found, "awq 4-bit g64") == 4 * (ATTENTION + MLP)  # "self_attn" ends no module's name and starts none
    found = stored({**base, "modules_to_not_convert": ["q_proj"]})
    assert count(found, "awq 4-bit g64") == 4 * (ATTENTION + MLP - 256 * 256)
    assert count(found, "bf16") == 4 * 256 * 256 + 2 * TABLE + NORMS


def test_bitsandbytes_list_replaces_the_head() -> None:
    base = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    assert count(stored(base), "nf4") == 4 * (ATTENTION + MLP)
    found = stored({**base, "llm_int8_skip_modules": ["down_proj"]})
    assert count(found, "nf4") == 4 * (ATTENTION + MLP - 256 * 512) + TABLE


def test_bitsandbytes_leaves_fused_experts() -> None:
    config = {
        **LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    }  # fmt: skip
    found = weights(read_config(config))
    assert count(found, "bnb-int8") == 4 * ATTENTION
    assert any("experts stay unquantized" in text for text in found.assumptions)


def test_compressed_tensors_mixed_groups() -> None:
    four = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64, "symmetric": True}
    eight = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    dynamic = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    found = stored(
        {
            "quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"],
            "config_groups": {
                "group_0": {"targets": ["re:.*mlp.*"], "weights": four, "format": "pack-quantized"},
                "group_1": {"targets": ["re:.*self_attn.*"], "weights": eight, "input_activations": dynamic,
                            "format": "float-quantized"},
            },
        }
    )  # fmt: skip
    assert count(found, "pack-quantized 4-bit g64") == 4 * MLP
    assert count(found, "fp8-channel") == 4 * ATTENTION
    assert not found.warnings


def test_modelopt_mixed_precision() -> None:
    layers = {f"model.layers.{i}.mlp.{n}": {"quant_algo": "NVFP4"} for i in range(4) for n in ("up_proj", "down_proj")}
    layers |= {"lm_head": {"quant_algo": "FP8"}, "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}
    found = stored(
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "ignore": []}
    )
    assert count(found, "nvfp4") == 4 * 2 * 256 * 512
    assert count(found, "fp8") == TABLE + 256 * 256


def test_hf_quant_config_at_the_top_level() -> None:
    inner = {"quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.1*"], "kv_cache_quant_algo": "FP8"}
    config = {**LLAMA, "quantization": {"quantization": inner, "producer": {"name": "modelopt"}}}
    found = weights(read_config(config))
    assert count(found, "fp8") == 3 * (ATTENTION + MLP)


def test_quark() -> None:
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    found = stored(
        {"quant_method": "quark", "global_quant_config": {"weight": weight}, "exclude": ["lm_head", "*down_proj"]}
    )
    assert count(found, "mxfp4") == 4 * (ATTENTION + MLP - 256 * 512)


def test_an_entry_without_a_module_is_a_warning() -> None:
    base = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "mlp.gaet"]}
    assert stored(base).warnings == ("entries of the quantization_config name no module of this model: mlp.gaet",)


def test_single_experts_may_be_named() -> None:
    config = {
        **LLAMA, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "head_dim": 64, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8",
                                "exclude_modules": ["lm_head", "model.layers.2.mlp.experts.3*"]},
    }  # fmt: skip
    found = weights(read_config(config))
    assert count(found, "fp8") == 4 * ATTENTION + (4 * 4 - 1) * 3 * 64 * 256


def test_quantization_of_a_nested_block_leaves_the_towers_alone() -> None:
    found = weights(load("kimi-k2.5").architecture)
    assert found.vision_bytes == 2 * 471_143_920
    experts = 60 * 384 * 3 * 2048 * 7168
    assert count(found, "pack-quantized 4-bit g32") == experts


# -- refusals ------------------------------------------------------------------------------------------------------

REFUSED: dict[str, dict[str, object]] = {
    "brand_new": {"quant_method": "brand_new", "bits": 3},
    "vptq": {"quant_method": "vptq"},
    "5 bits": {"quant_method": "gptq", "bits": 5, "group_size": 128},
    "marlin": {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"},
    "gemv": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"},
    "marlin-24": {"quant_method": "compressed-tensors", "format": "marlin-24",
                  "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}}},
    "W4A8_AWQ": {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
    "uint3": {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint3", "qscheme": "per_group"}}},
    "(missing)": {"bits": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedFormatError) as error:
        stored(REFUSED[name])
    assert name in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    "bad",
    [
        {"quant_method": "gptq", "bits": "four"},
        {"quant_method": "gptq", "bits": 4, "group_size": {"a": 1}},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": 4},
        {"quant_method": "compressed-tensors", "config_groups": ["Linear"]},
        {"quant_method": "awq", "bits": None, "group_size": 2**40},
    ],
)
def test_malformed_configs_are_errors_with_the_key(bad: dict[str, object]) -> None:
    with pytest.raises(LlmcalcError) as error:
        stored(bad)
    assert "quantization_config" in error.value.message or "is not known" in error.value.message


@pytest.mark.parametrize("bad", [[1], "fp8", 3])
def test_a_quantization_config_that_is_no_object(bad: object) -> None:
    with pytest.raises(InvalidInputError):
        read_config({**LLAMA, "quantization_config": bad})


def test_null_is_no_quantization() -> None:
    assert weights(read_config({**LLAMA, "quantization_config": None})).format == "bf16"


# -- asked ---------------------------------------------------------------------------------------------------------


def test_asked_formats_leave_tables_norms_and_routers() -> None:
    architecture = load("mixtral-8x7b").architecture
    found = weights(architecture, "fp8")
    kept = 2 * 32_000 * 4096 + 65 * 4096 + 32 * 8 * 4096
    assert count(found, "bf16") == kept
    matrices = 32 * (4 + 8 * 3)
    assert found.total_bytes == 46_702_792_704 - kept + 2 * kept + 4 * matrices


def test_group_sizes() -> None:
    architecture = load("llama-3-8b").architecture
    matrices, tables = 6_979_321_856, 2 * 1_050_939_392
    for group in (32, 64, 128):
        assert (
            weights(architecture, "int4", group_size=group).total_bytes
            == matrices // 2 + 2 * matrices // group + tables
        )
    with pytest.raises(InvalidInputError, match="no groups"):
        weights(architecture, "fp8", group_size=64)
    with pytest.raises(InvalidInputError, match="fixed size"):
        weights(architecture, "q4_k_m", group_size=64)
    with pytest.raises(UnsupportedFormatError, match="do not divide"):
        weights(architecture, "int4", group_size=100)


@pytest.mark.parametrize("name", ["bf16", "BF16", "f32", "float16", "fp8_block", "q4_K_M", "nf4_dq"])
def test_names_are_taken_as_people_write_them(name: str) -> None:
    assert weights(load("smollm2-135m").architecture, name).total_bytes > 0


def test_unknown_names_suggest_the_closest() -> None:
    with pytest.raises(UnsupportedFormatError) as error:
        weights(load("smollm2-135m").architecture, "q4_k_n")
    assert "q4_k_m" in error.value.hint


# -- any config whatever -------------------------------------------------------------------------------------------

KEYS = """
    bits group_size config_groups targets weights num_bits type strategy ignore format dynamic input_activations
    modules_to_not_convert weight_block_size quant_algo quantized_layers exclude_modules global_quant_config
    weight dtype qscheme symmetric actorder load_in_4bit bnb_4bit_quant_type quant_config nbits quant_type version
    lm_head group_0 block_structure modules_in_block_to_quantize
""".split()
LETTERS = "re:.*(|)?[]\\lm_head0"
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 200)
    | st.floats(allow_nan=False)
    | st.text("re:.*(|)?[]\\lm_head0", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
METHODS = ("fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "modelopt", "quark", "mxfp4", "hqq", "torchao",
           "bitnet", "auto-round", "fbgemm_fp8", "eetq")  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(method=st.sampled_from(METHODS), rest=st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=6))
def test_any_config_is_read_or_refused(method: str, rest: dict[str, object]) -> None:
    with contextlib.suppress(LlmcalcError):
        assert stored({**rest, "quant_method": method}).total_bytes > 0


@pytest.mark.parametrize("entry", ["re:(", "re:(?i)LM_HEAD", "re:(?P<a>lm)_head", "*[", "re:(lm)_\\1", "lm_head$", "["])
def test_odd_patterns_are_no_crash(entry: str) -> None:
    for dialect in ("transformers", "compressed-tensors", "wildcard"):
        Names((entry, "re:(?P<a>x)", "lm_head"), dialect).match(("lm_head",))  # type: ignore[arg-type]
