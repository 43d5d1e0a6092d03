"""Pieces that towers share: attention without a cache, plain tensors, sizes of images and patches."""

from __future__ import annotations

from collections.abc import Iterable

from llmcalc.arch.attention import Attention, QkNorm
from llmcalc.arch.base import BIDIRECTIONAL, Extra, Norm, Role, Weight
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families.build import divide, key_value_heads
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named


def under(prefix: str, name: str) -> str:
    """``prefix.name``, without a stray dot."""
    return ".".join(part for part in (prefix, name) if part)


def tensor(name: str, shape: tuple[int, ...], role: Role, part: str = "other") -> Named:
    """A single stored tensor under its full name."""
    head, _, last = name.rpartition(".")
    return Named(head, Extra((Weight(last, shape, role),), part))


def linear_at(name: str, outputs: int, inputs: int, *, bias: bool = True) -> Named:
    """A matrix outside the layers."""
    return Named(name, Projection(outputs, inputs, bias))


def norm_at(name: str, size: int, *, bias: bool = True) -> Named:
    """A LayerNorm outside the layers; an RMSNorm where it has no bias."""
    return Named(name, Norm(size, "layer" if bias else "rms", bias=bias))


def conv_at(name: str, shape: tuple[int, ...], *, bias: bool = True, per_position: int = 1) -> Named:
    """A convolution's kernel ``[out, in, ...]`` and its bias."""
    weights = [Weight("weight", shape, "conv")]
    if bias:
        weights.append(Weight("bias", shape[:1], "bias"))
    return Named(name, Extra(tuple(weights), per_position=per_position))


def pair(fields: Fields, name: str) -> tuple[int, int]:
    """A size given as one number or as height and width."""
    value = fields.raw(name)
    if isinstance(value, list):
        sizes = fields.integers(name, low=1) or []
        if len(sizes) != 2:
            raise fields.wrong(name, value, "a number or two")
        return sizes[0], sizes[1]
    return (fields.integer(name),) * 2


def channels(fields: Fields) -> int:
    """Colour channels of the input."""
    return fields.integer("num_channels", "in_channels", "in_chans", null=3)


def grid(fields: Fields) -> int:
    """Patches of an image: rows of a table of positions."""
    (height, width), (rows, columns) = pair(fields, "image_size"), pair(fields, "patch_size")
    if height < rows or width < columns:
        raise fields.wrong("image_size", fields.raw("image_size"), f"at least patch_size, {rows} x {columns}")
    return (height // rows) * (width // columns)


def encoder_attention(
    fields: Fields,
    d: int,
    *,
    qkv: bool = True,
    k_bias: bool | None = None,
    o: bool = True,
    qk_norm: QkNorm = "none",
    extra: Iterable[Weight] = (),
) -> Attention:
    """Attention in both directions, with nothing kept."""
    h = fields.integer("num_attention_heads", "vt_num_attention_heads", "conf_num_attention_heads")
    kv = key_value_heads(fields, h)
    own = None if fields.model_type == "pixtral" else fields.optional("head_dim")  # Pixtral's class overwrites it
    fields.ignore("head_dim")
    width = own or divide(fields, d, h, f"{fields.label('hidden_size')} / num_attention_heads")
    return Attention(
        d, h, kv, width, width, BIDIRECTIONAL, qkv, qkv if k_bias is None else k_bias, qkv, o,
        qk_norm=qk_norm, cache="none", extra=tuple(extra),
    )  # fmt: skip


def bounds(*matrices: str) -> tuple[Weight, ...]:
    """Gemma-4's clipped linears store four numbers a matrix."""
    ends = ("input_min", "input_max", "output_min", "output_max")
    return tuple(Weight(f"{matrix}.{name}", (), "buffer") for matrix in matrices for name in ends)
