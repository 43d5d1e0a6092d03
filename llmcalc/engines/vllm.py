"""vLLM: pages of blocks in one pool, a block table a group of layers.

Sources, read in November 2026: ``config/cache.py`` (block of 16), ``v1/kv_cache_interface.py``,
``v1/core/kv_cache_planning.py``, ``platforms/interface.py``, ``models/deepseek_v4/compressor.py``,
``v1/attention/backends/mla/flashmla_sparse.py``, ``model_executor/layers/mamba/mamba_utils.py``.
"""

from __future__ import annotations

from llmcalc.arch.base import State
from llmcalc.engines.base import Allocation, Mixer, Plan, StageBytes, check_format, check_kinds, mixers, rounded
from llmcalc.engines.pages import Group, Page, PageKind, aligned, groups
from llmcalc.engines.ranks import stages
from llmcalc.errors import UnsupportedFormatError, UnsupportedLayerError
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.formats import Format, find

SOURCE = "vLLM v1/core/kv_cache_planning.py, v1/kv_cache_interface.py"
FORMATS = ("bf16", "fp16", "fp32", "fp8", "fp8_per_token_head", "int8_per_token_head", "nvfp4")
RUNS = (
    "Attention", "LatentAttention", "CompressedAttention", "GatedDelta", "KimiDelta", "DecayAttention", "Mamba1",
    "Mamba2", "ShortConv",
)  # fmt: skip
SCOPES = ("full", "sliding", "chunked", "source", "fixed", "compressed", "open", "overlap", "bidirectional")
ENCODER_DECODERS = ("whisper",)  # V1 dropped the others

# Tokens of a block, unless --block-size says so: what the backend of that kind of attention asks for.
BLOCKS = {
    "Attention": 16,  # config/cache.py DEFAULT_BLOCK_SIZE
    "LatentAttention": 64,  # FlashMLA and the sparse kernels; CUTLASS-MLA takes 128, FlashInfer-MLA 32 or 64
    "CompressedAttention": 256,  # DeepSeek-V4
}
BATCHED = 8192  # max_num_batched_tokens of the API server on cards of 70 GiB and more; 2,048 below, 16,384 on Blackwell

# What recurrent states are stored in (mamba_utils.py, models/config.py): the file's own word in these families, fp32
# for Kimi's delta rule, else the model's dtype.
STATE_AS_FILE = ("qwen3_5_text", "qwen3_5_moe_text", "nemotron_h")
STATE_FP32 = ("KimiDelta",)

# models/config.py DeepseekV32ForCausalLM: "auto" became fp8 in 0.11 (vllm#25988), and is 16 bits again since.
FP8_ONCE = "vLLM 0.11 kept sparse latents in fp8 by default, newer releases where it is asked for: see --cache fp8"

# DeepSeek-V4: bytes of a cached entry (448 fp8 + 64 bf16 + 7 e8m0 + pad), tokens of a window page and of a compressor
# page, and what pages are rounded to.
V4_ENTRY, V4_WINDOW_BLOCK, V4_ROUND = 584, 64, 576
V4_STATE_BLOCK = {4: 4, 128: 8}


class VllmEngine:
    """What a request may take of the pool (``max_memory_usage_bytes``), tokens in flight included."""

    name = "vllm"

    def allocate(self, plan: Plan) -> Allocation:
        """Blocks of all sequences, their bytes on each device, and how they come about."""
        found = mixers(plan.architecture)
        check(plan, found)
        block = plan.block_size or max((BLOCKS.get(type(m.spec).__name__, 16) for m in found), default=16)
        pages = [page for mixer in found for page in pages_of(plan, mixer, block)]
        packed = any(type(mixer.spec).__name__ == "CompressedAttention" for mixer in found)
        made = _allocation(plan, groups(aligned(pages, block), packed=packed), format_name(plan, found))
        told = plan.cache.key.name != "fp8" and not plan.chosen and not packed and _sparse(found)
        return made._replace(warnings=(FP8_ONCE,) if told else ())


def check(plan: Plan, found: tuple[Mixer, ...]) -> None:
    """Refuse what vLLM does not run.

    Raises: UnsupportedLayerError, UnsupportedFormatError.
    """
    check_kinds("vLLM", found, RUNS, SCOPES)
    check_format("vLLM", plan.cache, FORMATS)
    if found and plan.architecture.encoder and plan.architecture.model_type not in ENCODER_DECODERS:
        raise UnsupportedLayerError(f"vLLM does not run the encoder and decoder of {plan.architecture.model_type}")
    if plan.cache.key.name == "fp32" and plan.chosen and plan.architecture.dtype != "fp32":
        raise UnsupportedFormatError("vLLM stores keys and values in fp32 only where the model runs in it")
    for mixer in found:
        if _sparse((mixer,)) and type(mixer.spec).__name__ not in ("LatentAttention", "CompressedAttention"):
            raise UnsupportedLayerError(f"how vLLM keeps the index keys of {mixer.name} layers is not known here")
    compressed = any(type(mixer.spec).__name__ == "CompressedAttention" for mixer in found)
    if compressed and plan.chosen and plan.cache.key.name != "fp8":
        raise UnsupportedFormatError("vLLM's DeepSeek-V4 cache is known in its own fp8 layout alone", "--cache fp8")


def format_name(plan: Plan, found: tuple[Mixer, ...]) -> str:
    """What keys, values and latents are stored in; beside an indexer, fp8 means records of their own layout."""
    name = plan.cache.key.name
    if any(type(mixer.spec).__name__ == "CompressedAttention" for mixer in found):
        return "fp8_ds_mla"
    sparse = _sparse(found)
    return f"{name}_ds_mla" if sparse and name in ("fp8", "nvfp4") else name


def _sparse(found: tuple[Mixer, ...]) -> bool:
    return any(state.kind == "index" for mixer in found for state in mixer.states)


def pages_of(plan: Plan, mixer: Mixer, block: int) -> list[Page]:
    """The pages of one kind of layer: its keys and values, its latent and index, or its state."""
    kind = type(mixer.spec).__name__
    if kind == "CompressedAttention":
        return _v4_pages(plan, mixer, block)
    if kind == "LatentAttention":
        return _latent_pages(plan, mixer, block)
    if any(state.kind in ("recurrent", "conv") for state in mixer.states):
        size = sum(_state_bytes(plan, mixer, state) for state in mixer.states)
        name = f"{mixer.name} state in {_state_format(plan, mixer).name}"
        return [Page(name, "state", 1, size, size, mixer.depths)]
    scope = mixer.states[0].scope
    names: dict[str, PageKind] = {"sliding": "sliding", "chunked": "chunked", "source": "cross", "fixed": "cross"}
    size = block * sum(plan.row_bytes(state, plan.format(state)) for state in mixer.states)
    return [Page(mixer.name, names.get(scope.kind, "full"), block, size, size, mixer.depths, scope.size)]


def _state_bytes(plan: Plan, mixer: Mixer, state: State) -> int:
    """A state or the columns of a convolution, on one rank."""
    recurrent = state.kind == "recurrent"
    return plan.row_bytes(state, _state_format(plan, mixer) if recurrent else find(plan.architecture.dtype))


def _state_format(plan: Plan, mixer: Mixer) -> Format:
    """What the recurrent states of a layer are stored in."""
    if type(mixer.spec).__name__ in STATE_FP32:
        return find("fp32")
    own = next((state for state in mixer.states if state.kind == "recurrent"), None)
    if own is not None and plan.architecture.decoder_type in STATE_AS_FILE:
        return plan.format(own)
    return find(plan.architecture.dtype)


def _latent_pages(plan: Plan, mixer: Mixer, block: int) -> list[Page]:
    """A latent row a token, and with an indexer a key of its own: fp8 with a fp32 scale for 128."""
    rows = {state.name: state for state in mixer.states}
    if "index_open" in rows:
        raise UnsupportedLayerError("vLLM's pool of pooled index keys is not known here", "--engine none")
    each = latent_bytes(plan, mixer)
    kind: PageKind = "sliding" if rows["latents"].scope.kind == "sliding" else "full"
    out = [Page(mixer.name, kind, block, block * each, block * each, mixer.depths, rows["latents"].scope.size, True)]
    if "index_keys" in rows:
        size = block * index_bytes(rows["index_keys"].width)
        out.append(Page("index keys", "full", block, size, size, mixer.depths, 0, True))
    return out


def index_bytes(width: int) -> int:
    """A key of the lightning indexer: fp8 and a fp32 scale for 128 numbers (models/deepseek_v32/attention.py)."""
    return width + rounded(width, 128) // 128 * 4


def latent_bytes(plan: Plan, mixer: Mixer) -> int:
    """A latent and its rotary key: one row, whole on every rank; sparse kernels have records of their own."""
    rows = {state.name: state.width for state in mixer.states}
    rank, rotary, name = rows["latents"], rows.get("rotary_keys", 0), format_name(plan, (mixer,))
    if name == "fp8_ds_mla":
        return rank + rounded(rank, 128) // 128 * 4 + 2 * rotary  # 512 fp8 + 4 fp32 + 64 bf16 = 656
    if name == "nvfp4_ds_mla" and (rank, rotary) == (512, 64):
        return 352
    fmt: Format = plan.cache.key
    if fmt.row_bytes or fmt.block > 1:
        raise UnsupportedFormatError(f"vLLM has no latents in {fmt.name}", "bf16 or fp8")
    return fmt.array_bytes((rank + rotary,))


def _v4_pages(plan: Plan, mixer: Mixer, block: int) -> list[Page]:
    """A window of records, compressed records, the indexer's keys, and the compressors' open windows in fp32."""
    del plan
    found = {state.name: state for state in mixer.states}
    window = found["keys_values"].scope.size
    out = [_v4("window", "sliding", V4_WINDOW_BLOCK, V4_WINDOW_BLOCK * V4_ENTRY, mixer, window)]
    for prefix, entry in (("", V4_ENTRY), ("index_", index_bytes(128))):
        if f"{prefix}compressed" in found:
            rate, width = found[f"{prefix}compressed"].scope.size, found[f"{prefix}compressed"].width
            if rate not in V4_STATE_BLOCK or width != (128 if prefix else 512):
                raise UnsupportedLayerError(
                    f"vLLM's records of {width} numbers for {rate} positions are not known here"
                )
            kinds = ("entries", "compressor") if not prefix else ("index keys", "index compressor")
            names = tuple(f"{kind} of {rate}" for kind in kinds)
            tokens, span = V4_STATE_BLOCK[rate], rate * (2 if f"{prefix}overlap" in found else 1)
            size = tokens * found[f"{prefix}open_window"].width * 4
            out.append(_v4(names[0], "full", block, block // rate * entry, mixer))
            out.append(_v4(names[1], "sliding", tokens, size, mixer, span))
    return out


def _v4(name: str, kind: PageKind, block: int, content: int, mixer: Mixer, size: int = 0) -> Page:
    return Page(name, kind, block, rounded(content, V4_ROUND), content, mixer.depths, size, True)


def _allocation(plan: Plan, found: list[Group], name: str) -> Allocation:
    """The blocks that all sequences take of all groups, and their bytes on the fullest device."""
    batched, states = plan.batched_tokens or BATCHED, 2 if plan.prefix_caching else 1
    spans = stages(plan.architecture.decoder.depth, plan.pp)
    sizes = [max((group.bytes(stage) for group in found), default=0) for stage in spans]
    taken = [sum(number * group.blocks(size, batched, states) for size, number in plan.groups) for group in found]
    full = next((group for group in found if group.main.kind == "full"), None)
    slots = taken[found.index(full)] * full.main.block if full else None
    held = sum(number * size.tokens for size, number in plan.groups)
    widest = max(sizes)
    return Allocation(
        allocated_bytes=plan.tp * sum(sizes) * sum(taken),
        per_device_bytes=widest * sum(taken),
        figure=_figure(plan, found, taken, widest, (batched, states)),
        blocks=sum(taken),
        block_tokens=full.main.block if full else None,
        block_bytes=widest,
        slots=slots,
        unused=None if slots is None else slots - held,
        reserve_bytes=widest if found else 0,
        log_line_bytes=widest * sum(taken),
        log_line='"... GiB KV cache is needed" and, for the whole pool, "Available KV cache memory"',
        cache_format=name,
        stages=tuple(StageBytes(size * sum(taken), size, size) for size in sizes),
    )


def _figure(plan: Plan, found: list[Group], taken: list[int], block_bytes: int, used: tuple[int, int]) -> Figure:
    """Groups x blocks x layers x bytes of a page, kind by kind; what is behind a page in the notes."""
    kinds = {group.main: [b for g, b in zip(found, taken, strict=True) if g.main == group.main] for group in found}
    parts = tuple(_part(page, alike, block_bytes) for page, alike in kinds.items())
    notes = [f"a block takes the pages of a group's layers: {block_bytes:,} B on the fullest device"]
    for page in {page: None for group in found for page, _ in group.pages}:
        padded = f", padded from {page.content:,}" if page.bytes != page.content else ""
        tokens = f" of {page.block:,} tokens" if page.kind != "state" else ""
        notes.append(f"{page.name}: a page{tokens} takes {page.bytes:,} B in a layer{padded}")
    for page, alike in kinds.items():
        spare = len(alike) * (block_bytes // page.bytes) - len(page.depths)
        if len(kinds) > 1 and len(found[0].pages) == 1 and plan.pp == 1 and spare:
            notes.append(f"{page.name}: {len(page.depths)} layers in {len(alike)} groups, {spare} layers of padding")
    if {page.kind for page in kinds} & {"sliding", "chunked"}:
        notes.append(f"t = {used[0]:,} tokens may be in flight (max_num_batched_tokens)")
    if any(page.kind == "state" for page in kinds):
        notes.append(f"s = {used[1]} states a sequence (prefix caching is {'on' if used[1] > 1 else 'off'})")
    notes.append(f"not counted: one empty block of {block_bytes:,} B that the pool holds back")
    return total("vLLM's blocks", "B", parts, SOURCE, tuple(notes))


def _part(page: Page, alike: list[int], block_bytes: int) -> Figure:
    """The blocks of all groups of one kind of layer."""
    layers, rest = divmod(block_bytes, page.bytes)
    size: tuple[Factor, ...] = (Factor("bytes a block", block_bytes, "b"),)
    if not rest:
        size = (Factor("layers a group", layers, "L"), Factor("bytes a page", page.bytes, "p"))
    factors = (
        Factor("groups" if len(alike) > 1 else "group", len(alike), "G"),
        Factor(f"blocks of {page.block:,} tokens" if page.kind != "state" else "blocks", alike[0], page.rule),
        *size,
    )
    return product(page.name, "B", factors)


def padded_vocab(vocab: int, tp: int) -> int:
    """Rows of the embedding: a multiple of 64 (vocab_parallel_embedding.py), which the ranks must divide.

    Raises: UnsupportedLayerError where they do not.
    """
    rows = rounded(vocab, 64)
    if rows % tp:
        raise UnsupportedLayerError(f"vLLM pads {vocab:,} rows to {rows:,}, which --tp {tp} does not divide")
    return rows
