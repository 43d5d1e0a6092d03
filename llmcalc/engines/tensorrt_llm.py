"""TensorRT-LLM: one pool of blocks of 32 tokens.

Sources, read in November 2026: ``tensorrt_llm/llmapi/llm_args.py`` (KvCacheConfig: tokens_per_block 32,
max_attention_window unset, dtype auto, fp8, nvfp4); the executor's log for the line. The older builder's plugin has
blocks of 64.
"""

from __future__ import annotations

from llmcalc.engines.base import Allocation, Plan, check_format, check_kinds, mixers, rounded
from llmcalc.engines.pools import Pool, allocation
from llmcalc.errors import UnsupportedLayerError

SOURCE = "TensorRT-LLM tensorrt_llm/llmapi/llm_args.py, KvCacheConfig"
FORMATS = ("bf16", "fp16", "fp32", "fp8", "nvfp4")
RUNS = ("Attention", "LatentAttention")
SCOPES = ("full", "sliding", "chunked", "bidirectional")
BLOCK = 32


class TensorRtLlmEngine:
    """Blocks of 32 tokens over all layers; windows shorten nothing unless max_attention_window names them."""

    name = "tensorrt-llm"

    def allocate(self, plan: Plan) -> Allocation:
        """Blocks of all sequences, their bytes on each device, and how they come about."""
        found = mixers(plan.architecture)
        check_kinds("TensorRT-LLM", found, RUNS, SCOPES)
        check_format("TensorRT-LLM", plan.cache, FORMATS)
        if found and plan.architecture.encoder:
            raise UnsupportedLayerError("TensorRT-LLM's cross-attention pool is not known here", "--engine none")
        if any(state.kind in ("index", "buffer") for mixer in found for state in mixer.states):
            raise UnsupportedLayerError("how TensorRT-LLM stores index keys is not known here", "--engine none")
        block = plan.block_size or BLOCK
        slots = sum(number * rounded(size.tokens, block) for size, number in plan.groups)
        layers = tuple(
            (mixer.name, sum(plan.row_bytes(s, plan.format(s)) for s in mixer.states), mixer.depths) for mixer in found
        )
        pools = [Pool("tokens", slots, layers, "ceil(N / p) x p")] if layers else []
        windowed = any(s.scope.kind in ("sliding", "chunked") for mixer in found for s in mixer.states)
        made = allocation(
            plan, pools, engine="TensorRT-LLM", source=SOURCE, page=block, held_back=0,
            log_line='"[MemUsageChange] Allocated ... GiB for max tokens in paged KV cache"',
            cache_format=plan.cache.name,
        )  # fmt: skip
        told = "windows are kept at full length unless KvCacheConfig.max_attention_window names them"
        return made._replace(warnings=(told,) if windowed else ())
