"""Operations of a pass: products with weights, attention, scans; and what the rules of thumb say instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from llmcalc.arch.base import Step
from llmcalc.arch.mixing import Convention, Counting, LatentForm, ScanForm
from llmcalc.arch.model import Architecture
from llmcalc.calc.inputs import Described, architecture_of, whole
from llmcalc.calc.params import params
from llmcalc.calc.passes import Group, Logits, Pass, Product, Share, by_kind, products, stack_products
from llmcalc.calc.sizing import Sequences, sequences
from llmcalc.calc.training import ALL, Recompute, Trained, Training, training
from llmcalc.engines.counted import library
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from llmcalc.figure import Figure, total

Phase = Literal["prefill", "decode", "train"]
GROWTH = (1_000, 8_000, 128_000, 1_000_000)
SOURCE = (
    "2 operations a multiply-add: arXiv:2205.05198, appendix A; 2104.04473, appendix; each layer kind names its own"
)
NOT_COUNTED = "not counted: softmax, norms, activations, rotary positions, sampling and other element-wise work"


class KindFlops(NamedTuple):
    """Operations of all layers of one kind (or of what stands before and after them)."""

    stack: str
    kind: str
    matmul_flops: int
    attention_flops: int
    scan_flops: int

    @property
    def flops(self) -> int:
        """All of them."""
        return self.matmul_flops + self.attention_flops + self.scan_flops


class Rough(NamedTuple):
    """A rule of thumb: so many parameters, so many operations."""

    name: str
    params: int
    flops: int


class Growth(NamedTuple):
    """One pass with so many tokens, and what of it is attention."""

    tokens: int
    forward_flops: int
    attention_flops: int

    @property
    def attention_share(self) -> float:
        """Attention over everything."""
        return self.attention_flops / self.forward_flops if self.forward_flops else 0.0


@dataclass(frozen=True)
class FlopCount:
    """Operations of a pass, by the definitions of the command line; all whole numbers.

    ``forward_flops`` is one forward pass; the parts are those of the phase, in training forward and backward.
    ``figure`` is the same number with its derivation, made when it is asked for.
    """

    architecture: Architecture
    phase: Phase
    run: Pass
    trained: Trained
    recompute: Recompute

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """Every product of the forward pass."""
        return tuple(products(self.architecture, self.run))

    @cached_property
    def training(self) -> Training | None:
        """The backward pass; None outside training."""
        if self.phase != "train":
            return None
        return training(self.architecture, self.products, self.trained, self.recompute)

    @property
    def tokens(self) -> int:
        """New tokens, all sequences."""
        return self.run.tokens

    @cached_property
    def forward_flops(self) -> int:
        """One forward pass, adapters included."""
        adapters = self.training.adapter_flops if self.training else 0
        return sum(product.value for product in self.products) + adapters

    def _part(self, group: Group) -> int:
        if self.training:
            return self.training.part(group)
        return sum(product.value for product in self.products if product.group == group)

    @cached_property
    def matmul_flops(self) -> int:
        """Products with weights, the head's among them."""
        return self._part("matmul")

    @cached_property
    def attention_flops(self) -> int:
        """Scores, weighted values and indexers, by the convention."""
        return self._part("attention")

    @cached_property
    def scan_flops(self) -> int:
        """Linear attention and state-space scans."""
        return self._part("scan")

    @cached_property
    def lm_head_flops(self) -> int:
        """The output matrix (a part of ``matmul_flops``)."""
        if self.training:
            return self.training.head_flops
        return sum(p.value for p in self.products if p.weight is not None and p.weight.role == "head")

    @cached_property
    def attention_dense_flops(self) -> int | None:
        """Attention as if masked pairs were computed too; None where that is not known for a layer kind."""
        counting = self.run.counting._replace(convention="dense")
        try:
            found = tuple(products(self.architecture, self.run._replace(counting=counting), "attention"))
        except UnsupportedLayerError:
            return None
        if self.training:
            return training(self.architecture, found, self.trained, "none").part("attention")
        return sum(product.value for product in found if product.group == "attention")

    @property
    def macs(self) -> int:
        """Multiply-adds of the phase: half of its operations."""
        return (self.matmul_flops + self.attention_flops + self.scan_flops) // 2

    @cached_property
    def mtp_flops(self) -> int:
        """One forward pass of the multi-token-prediction heads beside the model, output matrix included."""
        found = [p for stack in self.architecture.mtp for p in stack_products(stack, self.run)]
        own_head = any(p.weight is not None and p.weight.role == "head" for p in found)
        head = sum(p.value for p in self.products if p.weight is not None and p.weight.role == "head")
        layers = sum(len(stack.layers) for stack in self.architecture.mtp)
        return sum(p.value for p in found) + (0 if own_head else layers * head)

    @cached_property
    def rough(self) -> tuple[Rough, ...]:
        """2 P a token, in training 6 P, with P counted in four ways (arXiv:2001.08361, section 2.1)."""
        try:
            count = params(self.architecture)
        except UnsupportedLayerError:  # a part of the model that no reader describes, and that no token here passes
            return ()
        tables = sum(
            p.blocks * p.weight.active_size
            for p in self.architecture.weights
            if p.weight.role in ("embedding", "head") and p.stack in ("encoder", "decoder")
            and not self.architecture.shares(p)
        )  # fmt: skip
        numbers = {
            "total": count.text_params, "active": count.active_params,
            "non_embedding": count.text_params - tables, "active_non_embedding": count.active_params - tables,
        }  # fmt: skip
        each = 6 if self.phase == "train" else 2
        return tuple(Rough(name, number, each * number * self.tokens) for name, number in numbers.items())

    @property
    def rough_2p_flops(self) -> int | None:
        """Twice the parameters that a token passes, for each token; None where parameters are not counted."""
        return 2 * self.rough[1].params * self.tokens if self.rough else None

    @property
    def kinds(self) -> tuple[KindFlops, ...]:
        """The forward pass by kinds of layers, in order of first use."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for p in self.products:
            row = found.setdefault((p.stack, p.kind), dict.fromkeys(("matmul", "attention", "scan"), 0))
            row[p.group] += p.value
        return tuple(KindFlops(stack, kind, *row.values()) for (stack, kind), row in found.items())

    @property
    def figure(self) -> Figure:
        """The forward pass, and in training the whole, term by term."""
        if self.training:
            return self.training.figure
        parts = by_kind((product, product.figure()) for product in self.products)
        return total("forward pass", "FLOP", parts, SOURCE, (NOT_COUNTED,))


def flops(
    architecture: Architecture | Described,
    tokens: int = 4096,
    batch: int = 1,
    *,
    phase: Phase = "prefill",
    past: int | None = None,
    new: int = 1,
    convention: Convention = "causal",
    logits: Logits | None = None,
    mla: LatentForm | None = None,
    scan: ScanForm | None = None,
    lengths: Sequence[int] | None = None,
    encoder_tokens: int | None = None,
    image_tokens: int = 0,
    train_tokens: int | None = None,
    trained: Trained = ALL,
    recompute: Recompute = "none",
) -> FlopCount:
    """Operations of prefill (``tokens`` after ``past``), decode (``new`` after ``past``) or a training step.

    A multiply-add is two. Element-wise work is not counted. Pairs are those a query sees (``causal``), or all that a
    library multiplies (``dense``: what torch's counter sees in transformers).
    Args: tokens: per sequence. past: cached before; in decode ``tokens`` by default. lengths: one a sequence, instead
    of tokens x batch. mla: expanded in prefill and training, absorbed in decode. scan: in blocks there, token by token
    in decode. train_tokens: of a whole run, in sequences of ``tokens``.
    Raises: InvalidInputError, UnsupportedLayerError. Source: arXiv:2205.05198, appendix A. Checked: tests/flops
    """
    architecture = architecture_of(architecture)
    new, past = whole("new", new, 0), None if past is None else whole("past", past, 0)
    if train_tokens is not None and phase != "train":
        raise InvalidInputError("--train-tokens is for --phase train")
    decode = phase == "decode"
    if (decode or past) and not architecture.decoder.layers:
        raise InvalidInputError(
            f"{architecture.model_type}: an encoder keeps nothing, so there is no step after another"
        )
    form = mla or ("absorbed" if decode else "expanded")
    counting = Counting(
        convention, form, scan or ("recurrent" if decode else "chunked"), library(architecture)
    )  # fmt: skip
    if train_tokens is not None:
        train_tokens = whole("train_tokens", train_tokens, 1)
        shares = _whole_run(train_tokens, tokens, encoder_tokens, image_tokens)
    else:
        cached = tokens if past is None or not decode else past
        least = 0 if decode and past is not None else 1
        groups = sequences(cached if decode else tokens, batch, lengths, encoder_tokens, image_tokens, least=least)
        shares = _steps(groups, past, new, decode=decode, listed=lengths is not None)
    run = Pass(shares, counting, logits or ("all" if phase == "train" else "last"))
    return FlopCount(architecture, phase, run, trained, recompute)


def _steps(groups: Sequences, past: int | None, new: int, *, decode: bool, listed: bool) -> tuple[Share, ...]:
    """A step for every length: of new tokens, or in decode of cached ones."""
    if new < 1 or (past or 0) < 0 or (decode and listed and past is not None):
        raise InvalidInputError("--new is at least 1, --past at least 0, and --lengths in decode are what is cached")
    return tuple(
        Share(Step(new, size.tokens, size.source), size.images, number)
        if decode
        else Share(Step(size.tokens, past or 0, size.source), size.images, number)
        for size, number in groups.groups
    )


def _whole_run(train_tokens: int, tokens: int, encoder_tokens: int | None, images: int) -> tuple[Share, ...]:
    """Sequences of ``tokens``, and a shorter last one."""
    if train_tokens < 1 or tokens < 1:
        raise InvalidInputError("--train-tokens and --tokens are at least 1")
    whole, rest = divmod(train_tokens, tokens)
    sizes = [(tokens, whole), (rest, 1)]
    return tuple(
        Share(Step(size, 0, size if encoder_tokens is None else encoder_tokens), images, number)
        for size, number in sizes
        if size and number
    )


def growth(count: FlopCount) -> tuple[Growth, ...]:
    """How the pass grows: one sequence of 1k, 8k, 128k and 1M tokens, new or (in decode) cached, counted alike."""
    share = count.run.shares[0]
    out = []
    for tokens in GROWTH:
        step = Step(share.step.new, tokens, tokens) if count.phase == "decode" else Step(tokens, 0, tokens)
        found = list(products(count.architecture, count.run._replace(shares=(Share(step, share.images),))))
        attention = sum(p.value for p in found if p.group == "attention")
        out.append(Growth(tokens, sum(p.value for p in found), attention))
    return tuple(out)
