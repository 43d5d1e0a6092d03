"""Pure state-space models: Mamba, Falcon-Mamba, Mamba-2."""

from __future__ import annotations

from llmcalc.arch.base import Spec
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import decoder, embed, rms
from llmcalc.arch.families.hybrid import scaled, single, state_dtype, whole_or
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture
from llmcalc.arch.ssm import Mamba1, Mamba2
from llmcalc.errors import InvalidInputError


def read(fields: Fields) -> Architecture:
    """One mixer and one norm a layer; Falcon-Mamba's norms on dt, B and C store nothing."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    spec = mamba2(fields, d) if fields.model_type == "mamba2" else mamba1(fields, d)
    layer, norm = single("mixer", spec, rms(d, fields)), rms(d, fields)
    fields.ignore(
        "d_inner", "fused_add_norm", "rms_norm", "norm_before_gate", "ssm_cfg", "time_step_init_scheme", "use_mambapy",
        "use_associative_scan", "expand", "time_step_rank", "intermediate_size", "mixer_rms_eps",
    )  # fmt: skip
    return decoder(
        fields, [layer] * count, width=d, final=norm, prefix="backbone.layers", final_name="backbone.norm_f",
        embedding=embed(fields, d, "backbone.embeddings", rows(fields)),
    )  # fmt: skip


def rows(fields: Fields) -> int:
    """Rows of the table: the original code pads the vocabulary, the library's files are padded already."""
    vocab, step = fields.integer("vocab_size"), fields.integer("pad_vocab_size_multiple", null=1)
    return -(-vocab // step) * step


def mamba1(fields: Fields, d: int) -> Spec:
    """Mamba-1; a file's ``intermediate_size`` wins over ``expand`` (Falcon-Mamba-7B says 16 where it is 2)."""
    inner = fields.optional("intermediate_size") if fields.has("intermediate_size") else None
    return Mamba1(
        d, inner or scaled(fields, "expand", d), fields.integer("state_size"),
        whole_or(fields, "time_step_rank", -(-d // 16)), fields.integer("conv_kernel"), fields.flag("use_conv_bias"),
        fields.flag("use_bias"), state_dtype=state_dtype(fields),
        weightless_norms=fields.model_type == "falcon_mamba",
        norm_eps=forward.number(fields, "mixer_rms_eps", null=1e-6),
    )  # fmt: skip


def mamba2(fields: Fields, d: int) -> Spec:
    """Mamba-2; heads x head_dim must be expand x hidden_size."""
    heads, width, inner = fields.integer("num_heads"), fields.integer("head_dim"), scaled(fields, "expand", d)
    if heads * width != inner:
        raise InvalidInputError(
            f"{fields.where}: num_heads x head_dim is {heads} x {width} = {heads * width:,}, "
            f"and expand x hidden_size is {inner:,}"
        )
    return Mamba2(
        d, heads, width, fields.integer("state_size"), fields.integer("n_groups"), fields.integer("conv_kernel"),
        fields.integer("chunk_size"), fields.flag("use_conv_bias"), fields.flag("use_bias"),
        state_dtype=state_dtype(fields), norm_groups=fields.integer("n_groups"),
        norm_eps=forward.number(fields, "layer_norm_epsilon", null=1e-5), time_step_limit=forward.time_steps(fields),
    )  # fmt: skip
