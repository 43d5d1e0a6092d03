"""SGLang: pools of token slots, a slot a token in every layer of its pool.

Sources, read in November 2026: ``srt/mem_cache/memory_pool.py`` (pools and what their log says),
``srt/mem_cache/kv_cache_configurator.py``, ``srt/configs/model_config.py`` (which models have a window pool),
``srt/configs/mamba_utils.py``, ``srt/arg_groups/overrides.py``, ``srt/arg_groups/model_overrides`` (pages, ratios).
"""

from __future__ import annotations

from fractions import Fraction

from llmcalc.engines.base import Allocation, Mixer, Plan, check_format, check_kinds, mixers, rounded
from llmcalc.engines.pools import Pool, allocation
from llmcalc.engines.vllm import index_bytes
from llmcalc.errors import UnsupportedFormatError, UnsupportedLayerError
from llmcalc.formats import find

SOURCE = "SGLang srt/mem_cache/memory_pool.py"
FORMATS = ("bf16", "fp16", "fp32", "fp8")
RUNS = ("Attention", "LatentAttention", "GatedDelta", "KimiDelta", "DecayAttention", "Mamba2", "ShortConv")
SCOPES = ("full", "sliding", "chunked", "fixed", "bidirectional")
SPARSE_PAGE = 64  # tokens of a page, which the sparse kernels force; elsewhere one
# Families with a pool of their own for layers with a window (model_config.py is_hybrid_swa_model); the window layers of
# the others are kept at full length. The window pool has so much of the other's slots (swa_full_tokens_ratio).
WINDOW_POOLS: dict[str, Fraction] = dict.fromkeys(
    ("llama4_text", "llama4", "gpt_oss", "mimo_v2_flash", "step3p5", "gemma4_text", "gemma4"), Fraction(4, 5)
)


class SglangEngine:
    """Slots for these sequences in each pool; the pool itself is as large as memory allows."""

    name = "sglang"

    def allocate(self, plan: Plan) -> Allocation:
        """Slots and states of all sequences, their bytes on each device, and how they come about."""
        found = mixers(plan.architecture)
        check_kinds("SGLang", found, RUNS, SCOPES)
        check_format("SGLang", plan.cache, FORMATS)
        if found and plan.architecture.encoder:
            raise UnsupportedLayerError(f"SGLang does not run the encoder of {plan.architecture.model_type}")
        page = plan.block_size or (SPARSE_PAGE if any(_index(mixer) for mixer in found) else 1)
        pools = _pools(plan, found, page)
        sparse = any(_index(mixer) for mixer in found) and plan.cache.key.name == "fp8"
        return allocation(
            plan, pools, engine="SGLang", source=SOURCE, page=page, held_back=page,
            log_line='"KV Cache is allocated. #tokens: ..., K size, V size" (GiB under the label GB)',
            cache_format="fp8 in rows of 656 B" if sparse else plan.cache.name,
        )  # fmt: skip


def _index(mixer: Mixer) -> bool:
    return any(state.kind == "index" for state in mixer.states)


def _pools(plan: Plan, found: tuple[Mixer, ...], page: int) -> list[Pool]:
    """The pool of full layers, that of window layers where the family has one, and that of states."""
    ratio = WINDOW_POOLS.get(plan.architecture.decoder_type or plan.architecture.model_type)
    attention = [mixer for mixer in found if not _recurrent(mixer)]
    windows = [m for m in attention if ratio is not None and m.states[0].scope.kind in ("sliding", "chunked")]
    full = [mixer for mixer in attention if mixer not in windows]
    slots = sum(number * rounded(size.tokens, page) for size, number in plan.groups)
    spans = {mixer.states[0].scope.size for mixer in windows}
    need = sum(number * rounded(min(size.tokens, max(spans)), page) for size, number in plan.groups) if windows else 0
    if windows and ratio is not None and not full:
        raise UnsupportedLayerError("SGLang's window pool is a share of a full one, and here no layer is full")
    if windows and ratio is not None:
        slots = max(slots, rounded(-(-need * ratio.denominator // ratio.numerator), page))
    pools = [Pool("tokens", slots, tuple((m.name, _slot_bytes(plan, m), m.depths) for m in full), "ceil(N / p) x p")]
    if windows and ratio is not None:
        share = slots * ratio.numerator // ratio.denominator // page * page
        layers = tuple((m.name, _slot_bytes(plan, m), m.depths) for m in windows)
        pools.append(Pool("window tokens", share, layers, f"{float(ratio)} of the full pool's"))
    states = [mixer for mixer in found if _recurrent(mixer)]
    if states:
        layers = tuple((m.name, _state_bytes(plan, m), m.depths) for m in states)
        pools.append(Pool("states", plan.sequences, layers, "B", 1, paged=False))
    return [pool for pool in pools if pool.layers]


def _recurrent(mixer: Mixer) -> bool:
    return any(state.kind in ("recurrent", "conv") for state in mixer.states)


def _slot_bytes(plan: Plan, mixer: Mixer) -> int:
    """A token in one layer on one rank; with an indexer a latent in fp8 is a row of 512 + 16 + 128 bytes."""
    rows = {state.name: state for state in mixer.states}
    index = index_bytes(rows["index_keys"].width) if "index_keys" in rows else 0
    if index and "latents" not in rows:
        raise UnsupportedLayerError(f"how SGLang keeps the index keys of {mixer.name} layers is not known here")
    if "index_open" in rows:
        raise UnsupportedLayerError("SGLang's pool of pooled index keys is not known here", "--engine none")
    if index and plan.cache.key.name == "fp8":
        if (rows["latents"].width, rows["rotary_keys"].width) != (512, 64):
            raise UnsupportedFormatError("SGLang's fp8 rows are known for latents of 512 + 64 alone", "--cache bf16")
        return 656 + index
    return index + sum(plan.row_bytes(s, plan.format(s)) for s in mixer.states if s.kind != "index")


def _state_bytes(plan: Plan, mixer: Mixer) -> int:
    """States in fp32 unless the file says otherwise, columns of convolutions in the model's dtype (mamba_utils.py)."""
    model = find(plan.architecture.dtype)
    return sum(plan.row_bytes(s, plan.format(s) if s.kind == "recurrent" else model) for s in mixer.states)


def padded_vocab(vocab: int, tp: int) -> int:
    """Rows of the embedding: a multiple of 64, or of 64 x tp where the ranks do not divide that."""
    rows = rounded(vocab, 64)
    return rows if rows % tp == 0 else rounded(vocab, 64 * tp)
