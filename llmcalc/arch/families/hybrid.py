"""What hybrid and recurrent families share: layer kinds by name, states' formats, Mamba mixers, MTP heads."""

from __future__ import annotations

from collections.abc import Sequence

from llmcalc.arch.base import Norm, Spec, StateDtype
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import DTYPES, divide, embed, layer_types
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Layer, Named, Stack, Sublayer
from llmcalc.arch.ssm import Mamba1, Mamba2
from llmcalc.errors import InvalidInputError

# Spellings of layer kinds, old and new (transformers 5 renames mamba and attention on load).
KINDS = {
    "mamba": "linear", "mamba2": "linear", "linear_attention": "linear", "recurrent": "linear", "kda": "linear",
    "attention": "full", "full_attention": "full", "hybrid": "hybrid", "moe": "moe", "mlp": "mlp", "conv": "conv",
    "sliding_attention": "sliding",
}  # fmt: skip


def state_dtype(fields: Fields, *names: str) -> StateDtype:
    """What the file keeps recurrent states in: fp32 where it says so or nothing, else the model's own format."""
    found: StateDtype = "fp32"
    for name in names or ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        value = fields.raw(name)
        if value is None or value == "auto":
            continue
        kind = DTYPES.get(value.removeprefix("torch.")) if isinstance(value, str) else None
        if kind is None:
            raise fields.wrong(name, value, "one of " + ", ".join(DTYPES))
        if kind != "fp32":
            found = "model"
    return found


def kinds(fields: Fields, layers: int, default: Sequence[str], allowed: Sequence[str], *more: str) -> list[str]:
    """A kind for each layer, from the file's own list in any spelling, else the class's rule."""
    types = layer_types(fields, layers, "layers_block_type", *more)
    return list(default) if types is None else named_kinds(fields, types, allowed)


def named_kinds(fields: Fields, types: Sequence[str], allowed: Sequence[str], name: str = "layer_types") -> list[str]:
    """Layer kinds under one spelling; an error for one that the class does not have."""
    out = [KINDS.get(kind, kind) for kind in types]
    for kind, spelled in zip(out, types, strict=True):
        if kind not in allowed:
            raise fields.wrong(name, spelled, "layers of the kinds " + ", ".join(allowed))
    return out


def every(layers: int, period: int, offset: int, hit: str = "full", miss: str = "linear") -> list[str]:
    """``hit`` at ``offset`` of each period, ``miss`` elsewhere."""
    return [hit if index % period == offset else miss for index in range(layers)]


def whole_or(fields: Fields, name: str, computed: int) -> int:
    """A size that may be ``"auto"``, null or absent, which stand for a computed one."""
    return computed if fields.raw(name) in (None, "auto") else fields.integer(name)


def scaled(fields: Fields, name: str, size: int) -> int:
    """A size times a factor of the file (``expand``, ``mamba_expand``), rounded down as the classes do."""
    factor = fields.number(name)
    width = int(factor * size) if 0 < factor < 2**20 else 0
    if width < 1:
        raise fields.wrong(name, factor, "a positive factor")
    return width


def mamba1(fields: Fields, d: int, inner: int, *, heads: int = 1, inner_norms: bool = False) -> Mamba1:
    """Mamba-1 by the keys that hybrids use (``mamba_d_state``, ``mamba_dt_rank`` ...)."""
    divide(fields, inner, heads, "the mamba width by n_mamba_heads")
    return Mamba1(
        d, inner, fields.integer("mamba_d_state"), whole_or(fields, "mamba_dt_rank", -(-d // 16)),
        fields.integer("mamba_d_conv"), fields.flag("mamba_conv_bias"), fields.flag("mamba_proj_bias"),
        inner_norms, heads, state_dtype(fields), norm_eps=forward.number(fields, "rms_norm_eps", null=1e-6),
    )  # fmt: skip


def mamba2(
    fields: Fields, d: int, inner: int, *, gated_norm: bool = True, out_bias: bool | None = None, check: bool = True
) -> Mamba2:
    """Mamba-2 by the keys that hybrids use (``mamba_n_heads``, ``mamba_d_head`` ...), ``inner`` channels wide."""
    heads = fields.integer("mamba_n_heads")
    auto = fields.raw("mamba_d_head") in (None, "auto")
    width = divide(fields, inner, heads, "the mamba width by mamba_n_heads") if auto else fields.integer("mamba_d_head")
    if check and heads * width != inner:
        raise InvalidInputError(
            f"{fields.where}: mamba_n_heads x mamba_d_head is {heads} x {width} = {heads * width:,}, "
            f"and the mamba layers are {inner:,} wide"
        )
    return Mamba2(
        d, heads, width, fields.integer("mamba_d_state"), fields.integer("mamba_n_groups"),
        fields.integer("mamba_d_conv"), fields.integer("mamba_chunk_size"), fields.flag("mamba_conv_bias"),
        fields.flag("mamba_proj_bias"), gated_norm, state_dtype(fields), out_bias=out_bias,
        norm_groups=fields.integer("mamba_n_groups"), norm_eps=forward.number(fields, "rms_norm_eps", null=1e-5),
        time_step_limit=forward.time_steps(fields),
    )  # fmt: skip


def single(name: str, spec: Spec, norm: Norm, norm_name: str = "norm") -> Layer:
    """A block of one sublayer behind one norm."""
    return Layer((Sublayer(name, spec, Named(norm_name, norm)),))


def mtp_head(
    fields: Fields, layers: Sequence[Layer], d: int, norm: Norm, *, embedding: bool = False, prefix: str = "mtp"
) -> tuple[Stack, ...]:
    """A multi-token-prediction head: two norms, a projection of 2 d to d, decoder layers, a last norm."""
    if not layers:
        return ()
    table = (embed(fields, d, f"{prefix}.embed_tokens"),) if embedding else ()
    stem = (
        *table,
        Named(f"{prefix}.pre_fc_norm_embedding", norm),
        Named(f"{prefix}.pre_fc_norm_hidden", norm),
        Named(f"{prefix}.fc", Projection(d, 2 * d)),
    )
    return (Stack("mtp", f"{prefix}.layers", tuple(layers), stem, (Named(f"{prefix}.norm", norm),)),)
