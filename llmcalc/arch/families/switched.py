"""Further rows of the two tables of switches: families of 2026 that no file of the measured corpus holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmcalc.arch.base import Extra, Weight
from llmcalc.arch.families import dense, moe
from llmcalc.arch.families.build import embed
from llmcalc.arch.families.layouts import CLASSIC, LLAMA, QWEN3, XIELU, Layout
from llmcalc.arch.families.moe import Experts
from llmcalc.arch.families.placements import qwen_step, typed
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Named
from llmcalc.errors import UnsupportedLayerError


def gate_bias(heads: int, _kv: int, _width: int) -> tuple[Weight, ...]:
    """Beam adds a number a head to its output gate."""
    return (Weight("gate_bias", (heads,), "scalar", split="column"),)


def beam_layers(fields: Fields, layers: int) -> list[bool]:
    """Beam: dense in the first three layers unless ``mlp_layer_types`` says otherwise."""
    return typed(fields, layers) if fields.has("mlp_layer_types") else [index >= 3 for index in range(layers)]


def flint_layers(fields: Fields, layers: int) -> list[bool]:
    """Flint: ``mlp_only_layers``, by default the first two, are dense, and so is what the step leaves out."""
    if not fields.has("mlp_only_layers"):
        return [index >= 2 for index in range(layers)]
    return qwen_step(fields, layers)


DENSE: dict[str, Layout] = {
    "apertus1p5_text": Layout(
        gated=False, qk_norm="head", qkv="?attention_bias", o="?attention_bias", ffn_extra=XIELU
    ),
    "muse_glimmer_text": Layout(
        qkv="?attention_bias", o="?attention_bias", style="sandwich", qk_norm="weightless", gate="elementwise",
        window="from_end", inert=("layer_rope_theta", "qk_scale_factor", "output_multiplier"),
    ),
    "glm_ocr_text": Layout(style="sandwich"),
    "paddleocr_vl_text": Layout(qkv="?use_bias", o="?use_bias", mlp="?use_bias"),
    "granite_docling_text": LLAMA,
    "granite4_vision_text": LLAMA,
    "hunyuan_vl_text": Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="head", inert=("eod_token_id",)),
    "cosmos3_edge_text": LLAMA._replace(gated=False),
    "emu3_text_model": LLAMA._replace(qkv=False, o=False, mlp=False),
    "voxtral_realtime_text": Layout(window="every"),
    "gpt_neox_japanese": CLASSIC._replace(qkv=False, o=False, mlp=False),
}  # fmt: skip

EXPERTS: dict[str, tuple[Layout, Experts]] = {
    "flint": (
        QWEN3._replace(sinks=True, window="flint"),
        Experts(flint_layers, shared="field", inert=("decoder_sparse_step",)),
    ),
    "kolibri1": (
        Layout(style="sandwich", qk_norm="head", window="period5"),
        Experts(shared="field", correction="buffer", fp32_router=True),
    ),
    "beam": (
        LLAMA._replace(
            mlp=False, style="sandwich", qk_norm="head", gate="elementwise", window="period6_end",
            attention_extra=gate_bias,
        ),
        Experts(beam_layers, correction="buffer", fp32_router=True),
    ),
    "deepseek_ocr2_text": (LLAMA, Experts(typed, shared="count", fp32_router=True)),
}  # fmt: skip


def read(fields: Fields) -> Architecture:
    """A decoder by its row, with experts or without."""
    if fields.model_type in EXPERTS:
        return moe.build(fields, *EXPERTS[fields.model_type])
    if fields.model_type in OWN:
        return OWN[fields.model_type](fields)
    return dense.build(fields, DENSE[fields.model_type])


def gpt_neox_japanese(fields: Fields) -> Architecture:
    """GPT-NeoX-Japanese: no biases, except one vector on the attention output of the last layer."""
    layout = DENSE["gpt_neox_japanese"]
    d, factor = fields.integer("hidden_size"), fields.integer("intermediate_multiple_size")
    built = dense.build(fields, layout._replace(width_factor=factor))
    *layers, last = built.decoder.layers
    extra = Named("", Extra((Weight("attention.dense_bias", (d,), "bias"),)))
    return replace(built, decoder=replace(built.decoder, layers=(*layers, replace(last, residual=(extra,)))))


def voxtral_realtime(fields: Fields) -> Architecture:
    """Voxtral-Realtime: Mistral's layout, and a norm in each layer that the delay of the transcript scales."""
    built, d = dense.build(fields, DENSE["voxtral_realtime_text"]), fields.integer("hidden_size")
    rank = ADAPTIVE_RANK
    extra = Named("ada_rms_norm", Extra((Weight("linear1.weight", (rank, d)), Weight("linear2.weight", (d, rank)))))
    layers = tuple(replace(layer, residual=(extra,)) for layer in built.decoder.layers)
    return replace(built, decoder=replace(built.decoder, layers=layers))


# A constant of modeling_voxtral_realtime.py.
ADAPTIVE_RANK = 32


def molmo2(fields: Fields) -> Architecture:
    """Molmo-2: the token table has ``additional_vocab_size`` rows that the head does not have."""
    forms = {"qwen3": "head", "olmo": "full"}
    form = fields.pick("qk_norm_type", of=tuple(forms)) if fields.flag("use_qk_norm", null=True) else ""
    norm = forms.get(form, "none")
    style = "post" if fields.flag("norm_after") else "pre"
    fields.ignore("rope_scaling_layers", "use_qk_norm", "qk_norm_type", "norm_after")
    layout = Layout(qkv="?attention_bias", qk_norm=norm, style=style)
    d, more = fields.integer("hidden_size"), fields.integer("additional_vocab_size", null=0, low=0)
    built = dense.build(fields, layout)
    table = embed(fields, d, rows=fields.integer("vocab_size") + more)
    return replace(built, decoder=replace(built.decoder, stem=(table, *built.decoder.stem[1:])))


def apertus1p5(fields: Fields) -> Architecture:
    """Apertus 1.5; a head of fewer rows than the token table is not described."""
    rows, vocab = fields.optional("output_vocab_size"), fields.integer("vocab_size")
    if rows not in (None, vocab):
        raise UnsupportedLayerError(
            f"{fields.where}: {fields.label('output_vocab_size')} is {rows:,}: a pruned head is not described"
        )
    return dense.build(fields, DENSE["apertus1p5_text"])


OWN: dict[str, Callable[[Fields], Architecture]] = {
    "gpt_neox_japanese": gpt_neox_japanese,
    "voxtral_realtime_text": voxtral_realtime,
    "molmo2_text": molmo2,
    "apertus1p5_text": apertus1p5,
}
