"""Gemma's wider residual paths: inputs of each layer's own (Gemma-3n, Gemma-4), and Gemma-3n's AltUp and LAuReL.

Axes: B sequences, T tokens, D stream, M copies of the stream, L layers, w channels of a layer's own input.
Sources: arXiv:2301.13310 (AltUp), 2411.07501 (LAuReL), the Gemma-3n model card (per-layer embeddings).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from llmcalc.arch import base, embedding
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.model import Layer, Named
from llmcalc.arch.residual import AlternatingUpdates
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Flow
from reference_model.ffn import activation
from reference_model.norms import Norm
from reference_model.shared import ATTENTION, FEED_FORWARD, Adapters

# The last words of the names under which a stem has what makes the layers' own inputs.
TABLE, PROJECTION, NORM = "embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"
FACTORS = ("input_residual", "post_attention_residual")
ADAPTERS = (ATTENTION, FEED_FORWARD)
GATES = ("cross_attn_attn_gate", "cross_attn_mlp_gate")
PER_LAYER = ("per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm")


def matrix(spec: base.Spec) -> nn.Linear:
    """A projection's matrix."""
    assert isinstance(spec, embedding.Projection)
    return nn.Linear(spec.inputs, spec.outputs, spec.bias)


class AltUp(nn.Module):
    """M copies of the stream, of which a layer works on the first; small matrices predict and correct the others."""

    def __init__(self, spec: AlternatingUpdates, router_norm: Norm) -> None:
        super().__init__()
        D, M = spec.hidden_size, spec.streams
        self.correct_output_scale = nn.Parameter(torch.ones(D))
        self.correction_coefs, self.prediction_coefs = nn.Linear(M, M, bias=False), nn.Linear(M, M * M, bias=False)
        self.modality_router, self.router_norm = nn.Linear(D, M, bias=False), router_norm

    def routed(self, x_BTD: Tensor) -> Tensor:
        """A token's mixture: [B, T, M]."""
        return torch.tanh(self.modality_router(self.router_norm(x_BTD) / x_BTD.shape[-1]))

    def predict(self, x_BTDM: Tensor) -> Tensor:
        """Every copy plus a mixture of all: [B, T, D, M]."""
        M = x_BTDM.shape[-1]
        mix_BTMM = self.prediction_coefs(self.routed(x_BTDM[..., 0])).unflatten(-1, (M, M)).mT
        return x_BTDM + x_BTDM @ mix_BTMM

    def correct(self, predicted_BTDM: Tensor, done_BTD: Tensor) -> Tensor:
        """Every copy moved by what the layer changed in the first: [B, T, D, M]."""
        change_BTD1 = (done_BTD - predicted_BTDM[..., 0])[..., None]
        return predicted_BTDM + change_BTD1 * (self.correction_coefs(self.routed(done_BTD)) + 1)[:, :, None]


class Laurel(nn.Module):
    """A low-rank path beside the attention: x + norm(right(left(x)))."""

    def __init__(self, left: nn.Linear, right: nn.Linear, norm: Norm) -> None:
        super().__init__()
        self.linear_left, self.linear_right, self.post_laurel_norm = left, right, norm

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        return x_BTD + self.post_laurel_norm(self.linear_right(self.linear_left(x_BTD)))


class LayerScalar(nn.Module):
    """Gemma-4's one number a layer, stored and not learned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("layer_scalar", torch.ones(1))


class Residual(nn.Module):
    """What a Gemma block has beside its sublayers."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        named = {name or type(spec).__name__: spec for name, spec in layer.residual}
        act = next((ffn.activation for ffn in layer.ffns if isinstance(ffn, FeedForward)), "gelu_pytorch_tanh")
        self.act, self.parts, self.altup, self.laurel = activation(act), nn.ModuleDict(), None, None
        gate, projection, norm = (named.pop(name, None) for name in PER_LAYER)
        if gate is not None and projection is not None:
            made = (matrix(gate), matrix(projection), Norm(cast(base.Norm, norm)))
            self.parts.update(dict(zip(PER_LAYER, made, strict=True)))
        if "AlternatingUpdates" in named:
            router = Norm(cast(base.Norm, named.pop("altup.router_norm")))
            self.altup = AltUp(cast(AlternatingUpdates, named.pop("AlternatingUpdates")), router)
            left, right = (matrix(named.pop(f"laurel.linear_{side}")) for side in ("left", "right"))
            self.laurel = Laurel(left, right, Norm(cast(base.Norm, named.pop("laurel.post_laurel_norm"))))
        named.pop("Extra", None)
        extra = tuple(t.name for _, s in layer.residual if _ == "" and isinstance(s, base.Extra) for t in s.tensors)
        self.scalar = LayerScalar() if extra == ("layer_scalar",) else None
        self.factors: nn.ParameterDict | None = None
        if extra in (FACTORS, GATES):
            first = cast(Named, layer.sublayers[0].before).spec
            width = cast(base.Norm, first).size if extra == FACTORS else 1
            self.factors = nn.ParameterDict({name: nn.Parameter(torch.full((width,), 0.5)) for name in extra})
        self.gated = extra == GATES
        linear = named.pop("linear", None)
        self.linear = matrix(linear) if linear is not None else None
        extras = {name: spec for name, spec in layer.residual if name in ADAPTERS and isinstance(spec, base.Extra)}
        self.adapters = Adapters(extras) if linear is not None else None
        named = {name: spec for name, spec in named.items() if linear is None or name not in extras}
        if named or (extra and self.scalar is None and self.factors is None):
            raise UnsupportedLayerError("a residual path with " + ", ".join((*named, *extra)))

    def named(self) -> Iterator[tuple[str, nn.Module]]:
        """Every module under the name that the block gives it."""
        yield from self.parts.items()
        for name, made in (("altup", self.altup), ("laurel", self.laurel), ("", self.scalar), ("", self.factors)):
            if made is not None:
                yield name, made
        if self.linear is not None and self.adapters is not None:
            yield "linear", self.linear
            yield from self.adapters.named()

    def joined(self, x_BTD: Tensor, y_BTD: Tensor, index: int) -> Tensor:
        """The stream and what the index-th sublayer adds: [B, T, D].

        Doge has a factor for every channel of the stream, Llama-3.2-Vision a gate for what an image adds.
        """
        if self.factors is None:
            return x_BTD + y_BTD
        factor = list(self.factors.values())[index]
        return x_BTD + torch.tanh(factor) * y_BTD if self.gated else x_BTD * factor + y_BTD

    def beside(self, x_BTD: Tensor, flow: Flow) -> Tensor:
        """What the mixer reads: the stream, in Zamba with what the shared block before it has left: [B, T, D]."""
        return x_BTD if self.linear is None or flow.aside_BTD is None else x_BTD + self.linear(flow.aside_BTD)

    def own_input(self, x_BTD: Tensor, flow: Flow) -> Tensor:
        """What the layer's own input adds: [B, T, D]."""
        assert flow.per_layer_BTLw is not None
        gate, projection, norm = (self.parts[name] for name in PER_LAYER)
        return norm(projection(self.act(gate(x_BTD)) * flow.per_layer_BTLw[:, :, flow.depth]))

    def finish(self, x_BTD: Tensor, flow: Flow) -> Tensor:
        """Gemma-4: the layer's own input, then its scalar: [B, T, D]."""
        x_BTD = x_BTD + self.own_input(x_BTD, flow) if self.parts else x_BTD
        return x_BTD if self.scalar is None else x_BTD * self.scalar.layer_scalar

    def finish_wide(self, predicted_BTDM: Tensor, done_BTD: Tensor, flow: Flow) -> Tensor:
        """Gemma-3n: the copies corrected, and the layer's own input on all but the first: [B, T, D, M]."""
        assert self.altup is not None
        x_BTDM = self.altup.correct(predicted_BTDM, done_BTD)
        added_BTD1 = self.own_input(x_BTDM[..., 0] * self.altup.correct_output_scale, flow)[..., None]
        return torch.cat([x_BTDM[..., :1], x_BTDM[..., 1:] + added_BTD1], -1)


def per_layer_inputs(ends: dict[str, nn.Module], tokens_BT: Tensor, x_BTD: Tensor) -> Tensor:
    """Every layer's own input: a row of a table of its own and a projection of the embedding: [B, T, L, w]."""
    table = cast(nn.Embedding, ends[TABLE])
    projected = ends[PROJECTION](x_BTD) * x_BTD.shape[-1] ** -0.5
    norm = cast(Norm, ends[NORM])
    assert norm.weight is not None
    w = norm.weight.shape[0]
    inside_BT = torch.where(tokens_BT < table.num_embeddings, tokens_BT, 0)
    rows = table(inside_BT).unflatten(-1, (-1, w)) * w**0.5
    return (norm(projected.unflatten(-1, (-1, w))) + rows) * 2**-0.5


def widened(x_BTD: Tensor, matrices: list[nn.Module]) -> Tensor:
    """Copies of the stream, each projected and brought to the first one's magnitude: [B, T, D, M]."""
    return torch.stack([x_BTD, *(levelled(matrix_(x_BTD), x_BTD) for matrix_ in matrices)], -1)


def narrowed(x_BTDM: Tensor, matrices: list[nn.Module]) -> Tensor:
    """The mean of the copies, each projected back: [B, T, D]."""
    first, *others = x_BTDM.unbind(-1)
    return torch.stack([first, *(levelled(m(x), first) for m, x in zip(matrices, others, strict=True))]).mean(0)


def levelled(x: Tensor, like: Tensor) -> Tensor:
    """x at the root mean square of another."""
    target, found = like.pow(2).mean(-1, keepdim=True).sqrt(), x.pow(2).mean(-1, keepdim=True)
    return x * target / found.clamp(min=1e-5).sqrt()
