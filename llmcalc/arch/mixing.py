"""How products between activations are counted: the choices, and the terms that layer kinds answer with.

A multiply-add is two operations. Element-wise work (softmax, norms, activations, rotary positions) is never counted.
Legend: h heads, w window, c chunk, C length of a block of a scan, dk and dv widths of keys and values.
"""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

from llmcalc.arch.base import Scope, Step
from llmcalc.errors import UnsupportedLayerError

Convention = Literal["causal", "dense"]
LatentForm = Literal["absorbed", "expanded", "reexpand"]
ScanForm = Literal["recurrent", "chunked"]
TermKind = Literal["attention", "scan", "mixing"]


class Library(NamedTuple):
    """What the classes of a library compute beyond the definitions, for the convention that counts what they compute.

    full_keys: windows mask, and every key is multiplied and kept. blocks: windows of encoders are cut into blocks.
    window: added to windows. recomputes: weights that multiply the whole cache at every step.
    conv_again: outputs of a causal convolution beyond those of the new tokens, where columns are kept.
    """

    full_keys: bool = False
    blocks: bool = False
    window: int = 0
    recomputes: tuple[str, ...] = ()
    conv_again: int = 1


class Counting(NamedTuple):
    """The choices that decide a count.

    convention: ``causal`` counts the pairs a query sees; ``dense`` what a counter of matrix products sees when the
    library masks instead of skipping. latent: how latent attention is computed. scan: token by token, or in blocks.
    """

    convention: Convention = "causal"
    latent: LatentForm = "expanded"
    scan: ScanForm = "recurrent"
    library: Library = Library()

    @property
    def dense(self) -> bool:
        """Whether masked pairs count."""
        return self.convention == "dense"

    def keys(self, step: Step, scope: Scope) -> int:
        """Keys that the products of a step cover, masked ones included: those kept before, and the new ones."""
        match scope.kind:
            case "source" | "image":
                return step.source
            case "fixed":
                return scope.size
            case "sliding" | "chunked" if not self.library.full_keys:
                return min(step.past, scope.size + self.library.window - 1) + step.new
            case "bidirectional" if scope.size and self.library.blocks:
                return 3 * (scope.size + 1)
            case "compressed":
                return (step.past + step.new) // scope.size
            case _:
                return step.past + step.new

    def pairs(self, step: Step, scope: Scope) -> int:
        """Query-key pairs of a step."""
        if not self.dense:
            return step.pairs(scope)
        queries = step.new
        if scope.kind == "bidirectional" and scope.size and self.library.blocks:
            queries = whole_blocks(queries, scope.size + 1)
        return queries * self.keys(step, scope)


class Term(NamedTuple):
    """A product between activations: ``amount`` of something (pairs, tokens), each at a product of ``each``."""

    name: str
    kind: TermKind
    unit: str
    amount: int
    each: tuple[tuple[str, int], ...]
    source: str = ""

    @property
    def value(self) -> int:
        """Operations."""
        return self.amount * prod(size for _, size in self.each)


def whole_blocks(tokens: int, size: int) -> int:
    """Tokens padded to whole blocks."""
    return -(-tokens // size) * size


def softmax_attention(pairs: int, heads: int, key_width: int, value_width: int) -> Term:
    """Scores and weighted values: 2 h (dk + dv) a pair. Source: arXiv:1706.03762, section 3.2.1."""
    each = per_pair(heads, key_width + value_width)
    return Term("scores and values", "attention", "query-key pairs", pairs, each, "arXiv:1706.03762, section 3.2.1")


def per_pair(heads: int, width: int) -> tuple[tuple[str, int], ...]:
    """Factors of one pair."""
    return ("", 2), ("heads", heads), ("wide (key and value)", width)


def blockwise(
    tokens: int, size: int, heads: int, squared: int, linear: int, *, padded: bool, source: str
) -> tuple[Term, ...]:
    """A scan in blocks: ``squared`` operations a pair inside a block, ``linear`` a token to and from the state.

    padded: the last block is computed whole, else with the tokens it has.
    """
    if padded:
        tokens = whole_blocks(tokens, size)
    whole, rest = divmod(tokens, size)
    pairs = whole * size * size + rest * rest
    return (
        Term(
            "inside the blocks",
            "scan",
            f"pairs in blocks of {size}",
            pairs,
            (("heads", heads), ("a pair", squared)),
            source,
        ),
        Term("to and from the state", "scan", "tokens", tokens, (("heads", heads), ("a token", linear)), source),
    )


def recurrence(tokens: int, heads: int, size: int, operations: int, source: str) -> Term:
    """A scan token by token: so many operations on every number of the state."""
    each = (("heads", heads), ("numbers of state", size), ("operations", operations))
    return Term("recurrence", "scan", "tokens", tokens, each, source)


def no_dense_count(kind: str) -> UnsupportedLayerError:
    """The answer where nobody measured what a library's products amount to."""
    return UnsupportedLayerError(
        f"{kind}: what a counter of matrix products sees in this kind of layer is not known",
        "ask for --convention causal",
    )
