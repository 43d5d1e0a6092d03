"""vLLM's pages: how kinds of layers with pages of several sizes come to share one pool of blocks.

Source: vLLM ``v1/core/kv_cache_planning.py`` (groups), ``v1/kv_cache_interface.py`` (pages and what a request takes),
``platforms/interface.py`` (attention beside states), read in November 2026.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from llmcalc.engines.base import Lengths, rounded
from llmcalc.errors import UnsupportedLayerError

PageKind = Literal["full", "sliding", "chunked", "cross", "state"]
KERNEL_BLOCK = 16  # the smallest block that the attention kernels take


class Page(NamedTuple):
    """What one kind of layer puts into a block.

    size: its window or chunk, or the source positions where their number is fixed.
    block: tokens that a block stands for. bytes: of a block in one layer; content: of them,
    what is not padding. depths: the layers. latent: rows of a latent, which cannot be padded.
    """

    name: str
    kind: PageKind
    block: int
    bytes: int
    content: int
    depths: tuple[int, ...]
    size: int = 0
    latent: bool = False

    def blocks(self, lengths: Lengths, batched: int, states: int) -> int:
        """Blocks that one sequence may take of a group of this kind: a window keeps the tokens in flight as well."""
        n = (self.size or lengths.source) if self.kind == "cross" else lengths.tokens
        if n == 0:
            return 0
        match self.kind:
            case "sliding":
                return -(-min(self.size - 1 + batched, n) // self.block) + 1
            case "chunked":
                return -(-min(self.size + batched, n) // self.block)
            case "state":
                return states
            case _:
                return -(-n // self.block)

    @property
    def rule(self) -> str:
        """How many blocks, as a formula."""
        b = self.block
        return {
            "full": f"ceil(N / {b})", "cross": f"ceil({self.size or 'S'} / {b})", "state": "s",
            "sliding": f"(ceil(min({self.size:,} - 1 + t, N) / {b}) + 1)",
            "chunked": f"ceil(min({self.size:,} + t, N) / {b})",
        }[self.kind]  # fmt: skip


class Group(NamedTuple):
    """Layers that share a block table: pages, each with the depths that are in this group."""

    pages: tuple[tuple[Page, tuple[int, ...]], ...]

    @property
    def main(self) -> Page:
        """The page that the group is named after."""
        return self.pages[0][0]

    def bytes(self, stage: range) -> int:
        """Of one block, in the layers of a pipeline stage."""
        return sum(page.bytes * sum(depth in stage for depth in depths) for page, depths in self.pages)

    def blocks(self, lengths: Lengths, batched: int, states: int) -> int:
        """Blocks that one sequence takes."""
        return max(page.blocks(lengths, batched, states) for page, _ in self.pages)


def aligned(pages: list[Page], block: int) -> list[Page]:
    """Attention beside states: the attention block grows until its page holds a state, then states are padded to it."""
    states = [page for page in pages if page.kind == "state"]
    attention = [page for page in pages if page.kind != "state"]
    if not states or not attention:
        return pages
    first = next((page for page in attention if page.kind == "full"), attention[0])
    each, step = first.content // first.block, max(KERNEL_BLOCK, block)
    tokens = max(block, step * -(-max(page.content for page in states) // (step * each)))
    grown = [
        page._replace(
            block=tokens, bytes=tokens * page.bytes // page.block, content=tokens * page.content // page.block
        )
        for page in attention
    ]
    return [*grown, *(page._replace(bytes=max(tokens * each, page.content)) for page in states)]


def unified(pages: list[Page]) -> list[Page]:
    """All pages of the largest one's size: more tokens a block where that divides, padding where it does not.

    Raises: UnsupportedLayerError for latents, whose rows cannot be padded.
    """
    largest = max(page.bytes for page in pages)
    out = []
    for page in pages:
        if page.bytes == largest:
            out.append(page)
        elif page.kind == "state":
            out.append(page._replace(bytes=largest))
        elif largest % page.bytes == 0:
            times = largest // page.bytes
            out.append(page._replace(block=page.block * times, bytes=largest, content=page.content * times))
        elif not page.latent:
            out.append(page._replace(bytes=largest))
        else:
            raise UnsupportedLayerError(
                f"vLLM cannot put {page.name} pages of {page.bytes:,} B and pages of {largest:,} B into one pool",
                "choose another --cache format or --block-size",
            )
    return out


def groups(pages: list[Page], *, packed: bool = False) -> list[Group]:
    """The groups of layers; all their blocks come from one pool.

    One kind of layer is one group. Else layers are split into groups of equal size, the last of a kind padded; models
    whose pages are packed side by side (``packed``: DeepSeek-V4) keep their sizes.
    """
    if not pages:
        return []
    if len({(page.kind, page.size, page.block) for page in pages}) == 1:
        return [Group(tuple((page, page.depths) for page in pages))]
    if packed:
        return _packed(pages)
    buckets = _merged(unified(pages))
    sizes = [len(page.depths) for page in buckets]
    size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    return [group for page in buckets for group in _dealt([page], -(-len(page.depths) // size))]


def _merged(pages: list[Page]) -> list[Page]:
    """Pages that are alike in one bucket, the layers of all of them."""
    buckets: list[Page] = []
    for page in pages:
        for index, known in enumerate(buckets):
            if known._replace(depths=(), name="") == page._replace(depths=(), name=""):
                buckets[index] = known._replace(depths=tuple(sorted((*known.depths, *page.depths))))
                break
        else:
            buckets.append(page)
    return buckets


def _dealt(pages: list[Page], number: int) -> list[Group]:
    """Layers dealt out to so many groups in turn, so that every pipeline stage has a part of each."""
    return [Group(tuple((page, page.depths[i::number]) for page in pages)) for i in range(number)]


def _packed(pages: list[Page]) -> list[Group]:
    """Buckets of one block size and window; balanced ones are split into groups of about as many layers."""
    buckets: dict[tuple[object, ...], list[Page]] = {}
    for page in _merged(pages):
        buckets.setdefault((page.kind, page.size, page.block), []).append(page)
    balanced = {key: len({len(page.depths) for page in same}) == 1 for key, same in buckets.items()}
    layers = {key: max(len(page.depths) for page in same) for key, same in buckets.items()}
    floor = max((layers[key] for key, same in buckets.items() if balanced[key] and len(same) > 1), default=0)
    size = _least_padding([layers[key] for key in buckets if balanced[key]], floor) if floor else 0
    out: list[Group] = []
    for key, same in buckets.items():
        out += _dealt(same, -(-layers[key] // size) if size and balanced[key] else 1)
    return out


def _least_padding(counts: list[int], floor: int) -> int:
    """The group size with the least padding, the larger of two alike (``_approximate_gcd``)."""
    top = max(counts)
    return min(range(min(floor, top), top + 1), key=lambda d: (sum(rounded(x, d) - x for x in counts), -d))
