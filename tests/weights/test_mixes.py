"""llama.cpp's mixes: which tensor gets which type, held against the gguf package's own names."""

from __future__ import annotations

import pytest

from llmcalc import load, weights
from llmcalc.schemes.gguf import Apart, Gguf
from llmcalc.schemes.mixes import CONDITIONS, MIXES, Where
from llmcalc.schemes.sites import Site, sites


def types(model: str, mix: str, name: str) -> list[str]:
    """The types of a tensor over its blocks, in order."""
    architecture = load(model).architecture
    chooser = Gguf(architecture, MIXES[mix])
    found: dict[int, str] = {}
    for site in sites(architecture):
        if site.name == name:
            found.update({block: chooser.layout(site, block).name for block in site.blocks or (-1,)})
    return [found[block] for block in sorted(found)]


def test_more_bits_is_the_rule_of_llama_cpp() -> None:
    """use_more_bits(i, 32): the first and last eighth, and every third between."""
    more = [i for i in range(32) if CONDITIONS["more"](Where(i, 32, 1, 0))]
    assert more == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


def test_q4_k_m_of_llama() -> None:
    down = types("llama-3.1-8b", "q4_k_m", "mlp.down_proj.weight")
    assert down == types("llama-3.1-8b", "q4_k_m", "self_attn.v_proj.weight")
    assert down.count("q6_k") == 16
    assert set(types("llama-3.1-8b", "q4_k_m", "self_attn.q_proj.weight")) == {"q4_k"}
    assert types("llama-3.1-8b", "q4_k_m", "model.embed_tokens.weight") == ["q4_k"]
    assert types("llama-3.1-8b", "q4_k_m", "lm_head.weight") == ["q6_k"]


def test_a_tied_table_takes_the_output_s_type() -> None:
    assert types("llama-3.2-1b", "q4_k_m", "model.embed_tokens.weight") == ["q6_k"]
    assert types("llama-3.2-1b", "iq2_xxs", "model.embed_tokens.weight") == ["q5_k"]


def test_seventy_b_and_eight_experts() -> None:
    assert set(types("llama-3-70b", "q4_k_s", "self_attn.v_proj.weight")) == {"q5_k"}
    assert set(types("llama-3-70b", "q3_k_s", "self_attn.v_proj.weight")) == {"q5_k"}
    assert set(types("qwen2.5-72b", "q3_k_s", "self_attn.v_proj.weight")) == {"q5_k"}
    for name, kind in (("k_proj", "q8_0"), ("v_proj", "q8_0"), ("o_proj", "q5_k"), ("q_proj", "q4_k")):
        assert set(types("mixtral-8x7b", "q4_k_m", f"self_attn.{name}.weight")) == {kind}
    assert set(types("mixtral-8x7b", "iq2_xs", "self_attn.k_proj.weight")) == {"q4_k"}


def test_grouped_heads_decide_low_mixes() -> None:
    """g = 4 in Llama-3.1-8B, 1 in Llama-2-7B."""
    assert set(types("llama-3.1-8b", "q2_k", "self_attn.v_proj.weight")) == {"q4_k"}
    assert set(types("llama-2-7b", "q2_k", "self_attn.v_proj.weight")) == {"q3_k"}
    assert set(types("llama-3.1-8b", "iq4_xs", "self_attn.v_proj.weight")) == {"q5_k"}


def test_experts_alone_are_mxfp4() -> None:
    assert set(types("qwen3-30b-a3b", "mxfp4_moe", "mlp.experts.{}.up_proj.weight")) == {"mxfp4"}
    assert set(types("qwen3-30b-a3b", "mxfp4_moe", "self_attn.q_proj.weight")) == {"q8_0"}


def test_routers_norms_and_tables_of_positions_stay_in_32_bits() -> None:
    assert set(types("qwen3-30b-a3b", "q4_k_m", "mlp.gate.weight")) == {"fp32"}
    assert set(types("mamba-130m", "q8_0", "mixer.conv1d.weight")) == {"fp32"}
    assert set(types("mamba-130m", "q8_0", "mixer.A_log")) == {"fp32"}
    assert types("gpt2", "q8_0", "model.embed_positions.weight") == ["fp32"]


def test_latents_are_stored_as_two() -> None:
    chooser = Gguf(load("deepseek-v2").architecture, MIXES["q4_k_m"])
    site = next(s for s in sites(chooser.architecture) if s.module == "self_attn.kv_b_proj")
    layout = chooser.layout(site, site.blocks[0])
    assert isinstance(layout, Apart)
    assert [piece.name for piece in layout.pieces(site.shape)] == ["attn_k_b (q5_0)", "attn_v_b (q4_k)"]
    assert chooser.warnings == ("rows that q4_k does not divide are stored as q5_0: attn_k_b (128)",)


def test_rotary_factors_are_a_tensor() -> None:
    """Llama-3.1's rope_freqs: 64 numbers of 4 B, which Llama-3 does not have."""
    new, old = (weights(load(name).architecture, "q8_0").total_bytes for name in ("llama-3.1-8b", "llama-3-8b"))
    assert new - old == 256


# llama-quant.cpp tensor_get_category, by what a gguf name contains.
CATEGORIES = (
    ("attn_qkv.weight", "qkv"), ("attn_kv_b.weight", "apart"), ("attn_v.weight", "value"), ("attn_k.weight", "key"),
    ("attn_q.weight", "query"), ("attn_output.weight", "attention_output"), ("ffn_gate_inp", "keep"),
    ("ffn_up", "gate_up"), ("ffn_gate", "gate_up"), ("ffn_down", "down"),
)  # fmt: skip
ARCHES = {
    "llama-3.1-8b": "llama", "mixtral-8x7b": "llama", "qwen2.5-7b": "qwen2", "qwen3-30b-a3b": "qwen3moe",
    "qwen1.5-moe-a2.7b": "qwen2moe", "gemma-2-9b": "gemma2", "gemma-3-1b": "gemma3", "deepseek-v2": "deepseek2",
    "glm-4.5-air": "glm4moe", "phi-3-mini-4k": "phi3", "gpt2": "gpt2", "falcon-7b": "falcon", "bloom-560m": "bloom",
    "pythia-1b": "gptneox", "olmo-2-7b": "olmo2", "command-r": "command-r", "starcoder2-7b": "starcoder2",
    "mamba-130m": "mamba", "falcon-h1-34b": "falcon-h1", "jamba-1.5-mini": "jamba", "minimax-m2.7": "minimax-m2",
    "qwen3.5-9b": "qwen35", "gpt-oss-20b": "gpt-oss", "dbrx": "dbrx",
}  # fmt: skip


def named(site: Site, table: object) -> str | None:
    """The gguf package's name of a tensor, by any of its spellings."""
    spellings = site.spellings(site.blocks[0] if site.blocks else None)
    for spelled in spellings if len(site.weights) == 1 else [s for s in spellings if "_proj" not in s or "qkv" in s]:
        found = table.get_name(spelled.replace("experts.0.", "experts.") + ".weight", try_suffixes=(".weight",))  # type: ignore[attr-defined]
        if found:
            return str(found)
    return None


@pytest.mark.parametrize("model", ARCHES)
def test_categories_are_those_of_gguf_names(model: str) -> None:
    gguf = pytest.importorskip("gguf")
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    architecture = load(model).architecture
    table = gguf.get_tensor_name_map(known[ARCHES[model]], len(architecture.decoder.layers))
    chooser, met = Gguf(architecture, MIXES["q4_k_m"]), 0
    for site in sites(architecture):
        name = named(site, table)
        if site.stack != "decoder" or site.weight.role not in ("matmul", "head") or name is None:
            continue
        met += 1
        if "ffn_" in name and len(site.weights) > 1:
            name = "ffn_up"  # gate and up in one, which llama.cpp calls ffn_up
        expected = "output" if name == "output.weight" else next((c for part, c in CATEGORIES if part in name), "")
        assert chooser.category(site) == expected, (site.name, name)
    assert met >= 3


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_covers_a_model_whole(mix: str) -> None:
    for name in ("llama-3.1-8b", "qwen3-30b-a3b", "falcon-40b"):
        found = weights(load(name).architecture, mix)
        assert sum(count for _, count, _ in found.formats) == sum(s.size for s in sites(load(name).architecture))
        assert sum(part.value for part in found.figure.parts) == found.total_bytes
