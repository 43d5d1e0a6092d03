"""A block: its sublayers with their norms, and how they join the stream; and which module a layer kind is.

Axes: B sequences, T new tokens, D stream, M copies of the stream (Gemma-3n).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from llmcalc.arch import attention as attention_specs
from llmcalc.arch import base, conv, ffn, latent, linear, moe, recurrent, ssm
from llmcalc.arch.model import Layer, Named, Parallel, Sublayer
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Flow, Slot, Source
from reference_model.conv import ShortConv
from reference_model.ffn import FeedForward, MixtureOfExperts
from reference_model.latent import LatentAttention
from reference_model.linear import DecayAttention, GatedDelta, KimiDelta
from reference_model.norms import Norm, scaled
from reference_model.recurrent import RgLru, Rwkv4, Rwkv4ChannelMix
from reference_model.residual import AltUp, Laurel, Residual
from reference_model.ssm import Mamba1, Mamba2
from reference_model.variants import attention

Make = Callable[..., nn.Module]
MODULES: dict[type[base.Spec], Make] = {
    attention_specs.Attention: attention, latent.LatentAttention: LatentAttention,
    linear.GatedDelta: GatedDelta, linear.KimiDelta: KimiDelta, linear.DecayAttention: DecayAttention,
    ssm.Mamba1: Mamba1, ssm.Mamba2: Mamba2, conv.ShortConv: ShortConv, recurrent.RgLru: RgLru,
    recurrent.Rwkv4: Rwkv4, recurrent.Rwkv4ChannelMix: Rwkv4ChannelMix,
    ffn.FeedForward: FeedForward, moe.MixtureOfExperts: MixtureOfExperts,
}  # fmt: skip


def module(spec: base.Spec, depth: int) -> nn.Module:
    """The module of a layer kind.

    Raises: UnsupportedLayerError: where there is none.
    """
    if type(spec) not in MODULES:
        raise UnsupportedLayerError(f"{type(spec).__name__} ({spec.kind}) has no module in reference_model")
    return MODULES[type(spec)](spec, depth)


def norm(named: Named | None) -> Norm | None:
    """A sublayer's norm, where it has one."""
    if named is None:
        return None
    if not isinstance(named.spec, base.Norm):
        raise UnsupportedLayerError(f"{type(named.spec).__name__} as a norm")
    return Norm(named.spec)


class Part(nn.Module):
    """A sublayer: the norm before it, the mixer or feed-forward, the norms after it and after the sum."""

    def __init__(self, spec: Sublayer, depth: int) -> None:
        super().__init__()
        self.names = {"inner": spec.name} | {
            place: named.name for place in ("before", "after", "outer") if (named := getattr(spec, place)) is not None
        }
        self.before, self.after, self.outer = norm(spec.before), norm(spec.after), norm(spec.outer)
        self.branches = nn.ModuleList()
        self.inner: nn.Module | None = None
        if isinstance(spec.spec, Parallel):
            self.branches.extend(Part(branch, depth) for branch in spec.spec.branches)
        else:
            self.inner = module(spec.spec, depth)

    def mixers(self) -> Iterator[nn.Module]:
        """Every module that keeps something between steps, in the order in which they run."""
        if self.inner is not None and hasattr(self.inner, "allocate"):
            yield self.inner
        for branch in self.branches:
            yield from cast(Part, branch).mixers()

    def work(self, x_BTD: Tensor, flow: Flow, slots: Iterator[Slot | None]) -> Tensor:
        """Mixer or feed-forward and the norm after it: [B, T, D] -> [B, T, D]; branches are summed."""
        if self.inner is None:
            parts = [cast(Part, branch) for branch in self.branches]
            y = sum(
                (p.work(x_BTD if p.before is None else p.before(x_BTD), flow, slots) for p in parts), start=0 * x_BTD
            )
        elif hasattr(self.inner, "allocate"):
            y = self.inner(x_BTD, flow, next(slots))
        else:
            y = self.inner(x_BTD)
        return y if self.after is None else self.after(y)


class Block(nn.Module):
    """Sublayers one after another, each added to the stream, or all of them on the same normed input."""

    def __init__(self, layer: Layer, depth: int) -> None:
        super().__init__()
        self.parallel, self.scale, self.blend = layer.parallel, layer.residual_scale, layer.blend
        self.parts = nn.ModuleList(Part(sublayer, depth) for sublayer in layer.sublayers)
        self.residual = Residual(layer) if layer.residual else None
        self.shared = any(getattr(mixer, "output_size", 0) for mixer in layer.mixers)
        scopes = (getattr(mixer, "scope", None) for mixer in layer.mixers)
        self.about_images = any(scope is not None and scope.kind == "image" for scope in scopes)

    def residual_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """What the residual path itself stores."""
        yield from self.residual.named() if self.residual is not None else ()

    def mixers(self) -> list[nn.Module]:
        """Every module that keeps something between steps."""
        return [mixer for part in self.parts for mixer in cast(Part, part).mixers()]

    def forward(self, x_BTD: Tensor, flow: Flow, slots: list[Slot | None]) -> Tensor:
        """[B, T, D] -> [B, T, D]; a block that looks at an image is passed by where there is none."""
        if self.about_images and flow.source_BSD is None and not any(isinstance(s, Source) and s.filled for s in slots):
            return x_BTD
        queue = iter(slots)
        if self.residual is not None and self.residual.altup is not None:
            return self.wide(x_BTD, flow, queue)
        if self.shared:
            return self.aside(x_BTD, flow, queue)
        if self.parallel:
            added, normed = torch.zeros_like(x_BTD), x_BTD
            for part in (cast(Part, part) for part in self.parts):
                normed = normed if part.before is None else part.before(x_BTD)
                added = added + scaled(part.work(normed, flow, queue), self.scale)
            return x_BTD + added
        for index, part in enumerate(cast(Part, part) for part in self.parts):
            read_BTD = x_BTD if self.residual is None else self.residual.beside(x_BTD, flow)
            normed = read_BTD if part.before is None else part.before(read_BTD)
            if self.blend:
                a, b = self.blend[index]
                x_BTD = a * normed + b * part.work(normed, flow, queue)
                continue
            y_BTD = scaled(part.work(normed, flow, queue), self.scale)
            x_BTD = x_BTD + y_BTD if self.residual is None else self.residual.joined(x_BTD, y_BTD, index)
            x_BTD = x_BTD if part.outer is None else part.outer(x_BTD)
        return x_BTD if self.residual is None else self.residual.finish(x_BTD, flow)

    def aside(self, x_BTD: Tensor, flow: Flow, queue: Iterator[Slot | None]) -> Tensor:
        """Zamba's shared block, on the stream beside the embeddings; the stream goes on as it was: [B, T, D]."""
        mixer, ffn = (cast(Part, part) for part in self.parts)
        y_BTE = torch.cat([x_BTD, cast(Tensor, flow.embedded_BTD)], -1)
        y_BTD = mixer.work(cast(Norm, mixer.before)(y_BTE), flow, queue)
        y_BTD = cast(Norm, ffn.before)(y_BTD)
        adapter = flow.adapters.gate_up if flow.adapters is not None else None
        flow.aside_BTD = cast(FeedForward, ffn.inner)(y_BTD, None if adapter is None else adapter(y_BTD))
        return x_BTD

    def wide(self, x_BTDM: Tensor, flow: Flow, queue: Iterator[Slot | None]) -> Tensor:
        """Gemma-3n: the first of M copies through the sublayers, LAuReL beside the attention: [B, T, D, M]."""
        beside, altup = cast(Residual, self.residual), cast(AltUp, cast(Residual, self.residual).altup)
        (mixer, norm_), (ffn, norm_ffn) = ((cast(Part, part), cast(Norm, part.before)) for part in self.parts)
        predicted_BTDM = altup.predict(x_BTDM)
        first_BTD = predicted_BTDM[..., 0]
        normed_BTD = norm_(first_BTD)
        beside_BTD = cast(Laurel, beside.laurel)(normed_BTD)
        y_BTD = (first_BTD + mixer.work(normed_BTD, flow, queue) + beside_BTD) * 0.5**0.5
        y_BTD = y_BTD + ffn.work(norm_ffn(y_BTD), flow, queue)
        return beside.finish_wide(predicted_BTDM, y_BTD, flow)
