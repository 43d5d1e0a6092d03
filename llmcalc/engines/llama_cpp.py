"""llama.cpp: the whole context is allocated at the start, in cells, a stream a sequence.

Sources, read in November 2026: ``src/llama-context.cpp`` (n_ctx_seq), ``src/llama-kv-cache.cpp``,
``src/llama-kv-cache-iswa.cpp`` (windows), ``src/llama-hparams.cpp`` (n_embd_r, n_embd_s),
``src/llama-memory-recurrent.cpp``, ``common/common.h`` (the tools' defaults: n_ubatch 512, K and V
in F16, windows not at full size).
"""

from __future__ import annotations

from llmcalc.arch.base import State
from llmcalc.engines.base import Allocation, Mixer, Plan, StageBytes, check_format, check_kinds, mixers, rounded
from llmcalc.engines.ranks import stages
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.formats import CacheFormat, find

SOURCE = "llama.cpp src/llama-kv-cache.cpp, src/llama-kv-cache-iswa.cpp"
FORMATS = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
RUNS = (
    "Attention", "LatentAttention", "GatedDelta", "KimiDelta", "Mamba1", "Mamba2", "ShortConv", "Rwkv7",
    "Rwkv7ChannelMix",
)  # fmt: skip
SCOPES = ("full", "sliding", "chunked", "fixed", "bidirectional")
CELLS = 256  # contexts and windows are padded to this (GGML_PAD)
UBATCH = 512  # tokens of a physical batch, which a window's cache holds beside the window


class LlamaCppEngine:
    """Cells of the context and of the windows, and states in F32."""

    name = "llama.cpp"

    def allocate(self, plan: Plan) -> Allocation:
        """The caches of all sequences, their bytes on each device, and how they come about."""
        found = mixers(plan.architecture)
        check_kinds("llama.cpp", found, RUNS, SCOPES)
        cache = plan.cache if plan.chosen else CacheFormat(find("fp16"), find("fp16"))
        check_format("llama.cpp", cache, FORMATS, pairs=True)
        if found and plan.architecture.encoder:
            raise UnsupportedLayerError("llama.cpp keeps no keys and values of an encoder's output", "--engine none")
        for mixer in found:
            names = {state.name for state in mixer.states}
            if "index_open" in names or ("index_keys" in names and "latents" not in names):
                raise UnsupportedLayerError(
                    f"how llama.cpp keeps the index keys of {mixer.name} layers is not known here"
                )
        if plan.tp > 1:
            raise InvalidInputError("llama.cpp splits by layers, it keeps no share of the heads", "give --pp, not --tp")
        if plan.block_size is not None:
            raise InvalidInputError("llama.cpp has no blocks", "leave --block-size out")
        return _allocation(plan, cache, found)


def _allocation(plan: Plan, cache: CacheFormat, found: tuple[Mixer, ...]) -> Allocation:
    spans = stages(plan.architecture.decoder.depth, plan.pp)
    streams = plan.sequences
    context = rounded(max(size.tokens for size, _ in plan.groups), CELLS)
    rows = [
        (mixer, state, _cells(plan, state, context), _row_bytes(cache, state))
        for mixer in found
        for state in mixer.states
    ]
    sizes = [
        sum(streams * cells * size * sum(depth in stage for depth in mixer.depths) for mixer, _, cells, size in rows)
        for stage in spans
    ]
    fullest = spans[max(range(len(spans)), key=lambda i: sizes[i])]
    grows = any(state.scope.grows for _, state, _, _ in rows)
    held = sum(number * size.tokens for size, number in plan.groups)
    return Allocation(
        allocated_bytes=sum(sizes),
        per_device_bytes=max(sizes),
        figure=_figure(rows, streams, fullest, context),
        slots=streams * context if grows else None,
        unused=streams * context - held if grows else None,
        log_line_bytes=sum(sizes),
        log_line='"llama_kv_cache: size = ... MiB" and "llama_memory_recurrent: size", summed over the caches',
        cache_format=cache.name,
        stages=tuple(StageBytes(size) for size in sizes),
    )


def _cells(plan: Plan, state: State, context: int) -> int:
    """Cells of one stream: of the context, of a window and the batch beside it, or one for a state."""
    if state.scope.kind in ("sliding", "chunked"):
        return rounded(min(context, state.scope.size + (plan.batched_tokens or UBATCH)), CELLS)
    return context if state.scope.kind == "full" else 1


def _row_bytes(cache: CacheFormat, state: State) -> int:
    """A cell in one layer: heads side by side in one row; states and convolutions in F32, index keys in F16."""
    if state.kind in ("recurrent", "conv"):
        fmt = find("fp32")
    elif state.kind == "index":
        fmt = find("fp16")
    else:
        fmt = cache.value if state.kind == "value" else cache.key
    return fmt.array_bytes((state.width,))


def _figure(rows: list[tuple[Mixer, State, int, int]], streams: int, stage: range, context: int) -> Figure:
    """Streams x cells x layers x bytes, array by array."""
    parts = []
    for mixer, state, cells, size in rows:
        window = state.scope.kind in ("sliding", "chunked")
        rule = f"pad256(min(n_ctx, {state.scope.size:,} + u))" if window else "n_ctx"
        factors = (
            *((Factor("sequences", streams, "B"),) if streams > 1 else ()),
            *((Factor("cells", cells, rule),) if state.scope.kind != "fixed" else ()),
            Factor("layers", sum(depth in stage for depth in mixer.depths), "L"),
            Factor("bytes a cell and layer" if state.scope.kind != "fixed" else "bytes a state and layer", size, "b"),
        )
        parts.append(product(f"{mixer.name}: {state.name}".replace("_", " "), "B", factors))
    notes = (
        f"every sequence has a stream of n_ctx = {context:,} cells, the longest length padded to {CELLS}",
        f"u = {UBATCH} tokens of a physical batch, or --max-batched-tokens; quantised values want flash attention",
    )
    return total("llama.cpp's caches", "B", tuple(parts), SOURCE, notes)
