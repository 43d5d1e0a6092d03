"""What an engine does with a device's memory beside weights and cache: its rule, and ranges that people saw.

Ranges are the smallest and the largest figure in the public logs named, over models of 1 to 400 B; they are not
estimates for a model. The rules are from the engines' files, read in November 2026.
"""

from __future__ import annotations

from math import ceil

from llmcalc.engines.base import Budget, Part
from llmcalc.errors import InvalidInputError
from llmcalc.units import BINARY

GIB, MIB = BINARY["Gi"], BINARY["Mi"]
CONTEXT = Part(
    "CUDA context and loaded kernels", 200 * MIB, 700 * MIB,
    "225 to 612 MiB seen with torch on five cards; more without lazy loading",
)  # fmt: skip
VLLM = "vLLM v1/worker/gpu_worker.py determine_available_memory"
VLLM_PARTS = (
    Part("outside torch (context, NCCL)", round(0.05 * GIB), round(0.33 * GIB),
         "non_torch_memory in logs: vllm#14452, vllm#15340, gateway-api-inference-extension#550"),
    Part("activations of a full batch", round(0.22 * GIB), round(2.38 * GIB),
         "activation peak in logs: mellea#416, vllm#15340, vllm#14452, gateway-api-inference-extension#550"),
    Part("CUDA graphs", 0, round(1.40 * GIB),
         "none with enforce_eager; 0.13 to 1.40 GiB in logs: mellea#416, vllm#11349, gpustack/runner#251, sglang#8538"),
)  # fmt: skip
SGLANG = "SGLang srt/arg_groups/memory_hook.py"
SGLANG_GRAPHS = Part("CUDA graphs", 0, round(6.19 * GIB), "1.00 to 6.19 GB in logs: sglang#12978, #8538")
LARGE, LARGE_RESERVE = 60 * GIB, 10 * GIB
UBATCH = 512


def budget(
    engine: str, device_memory: int, *, utilization: float | None = None, tp: int = 1, pp: int = 1,
    batched_tokens: int | None = None, vocab: int = 0,
) -> Budget:  # fmt: skip
    """What is left for weights, parts and cache on one device of ``device_memory`` bytes.

    Args: utilization: the engine's fraction, by default its own. batched_tokens: of a step, for SGLang's reserve and
    llama.cpp's buffer. vocab: rows of logits, for llama.cpp's buffer.
    Raises: InvalidInputError.
    """
    if engine not in RULES:
        raise InvalidInputError(f"--engine {engine}: no such engine", f"known engines: {', '.join(RULES)}")
    if utilization is not None and not 0 < utilization <= 1:
        raise InvalidInputError(f"--utilization {utilization}: expected a fraction above 0, at most 1")
    if device_memory <= 0:
        raise InvalidInputError(f"a device of {device_memory} bytes: expected more than none")
    return RULES[engine](device_memory, utilization, tp * pp, batched_tokens, vocab)


def _vllm(memory: int, fraction: float | None, ranks: int, batched: int | None, vocab: int) -> Budget:
    """A fraction of the memory holds everything; until 0.21 it was 0.90, and graphs came on top."""
    del ranks, batched, vocab
    share = 0.92 if fraction is None else fraction
    return Budget("of_total", share, ceil(memory * share), VLLM_PARTS, VLLM)


def _sglang(memory: int, fraction: float | None, ranks: int, batched: int | None, vocab: int) -> Budget:
    """What is not reserved is static: weights and pools. Reserved: 512 MiB, 1.5 a token of a chunk, 128 a rank."""
    del vocab
    reserve = round((512 + 1.5 * max(batched or 8192, 2048) + 1024 * ranks / 8) * MIB)
    if memory > LARGE:
        reserve = max(reserve, LARGE_RESERVE)
    left = max(memory - reserve, 0) if fraction is None else ceil(memory * fraction)
    kept = Part("activations and runtime (reserved)", memory - left, memory - left, SGLANG)
    return Budget("of_total", left / memory, left, (kept, SGLANG_GRAPHS), SGLANG)


def _tensorrt(memory: int, fraction: float | None, ranks: int, batched: int | None, vocab: int) -> Budget:
    """A fraction of what is free after loading is cache: cache = fraction x (available - weights - parts)."""
    del ranks, batched, vocab
    share = 0.9 if fraction is None else fraction
    return Budget("of_free", share, memory, (CONTEXT,), "TensorRT-LLM llmapi/llm_args.py free_gpu_memory_fraction")


def _llama(memory: int, fraction: float | None, ranks: int, batched: int | None, vocab: int) -> Budget:
    """All of it but a margin of 1 GiB (fit_params); the compute buffer holds logits in F32."""
    del ranks
    margin = GIB if fraction is None else memory - ceil(memory * fraction)
    buffer = Part("compute buffer", 4 * vocab, 4 * (batched or UBATCH) * vocab,
                  "logits of one token, or of a whole physical batch, in F32; no activations")  # fmt: skip
    left = max(memory - margin, 0)
    return Budget("fixed", left / memory, left, (CONTEXT, buffer), "llama.cpp common/common.h fit_params_target")


def _plain(memory: int, fraction: float | None, ranks: int, batched: int | None, vocab: int) -> Budget:
    """No rule: the whole memory, or the fraction a person names."""
    del ranks, batched, vocab
    share = 1.0 if fraction is None else fraction
    return Budget("of_total", share, ceil(memory * share), (CONTEXT,), "no reserve but what the driver takes")


RULES = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt,
    "llama.cpp": _llama,
    "transformers": _plain,
    "none": _plain,
}
