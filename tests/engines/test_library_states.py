"""Recurrent states as transformers 5.24 allocates them: tiny models run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmcalc import kv_cache, read_config

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

TINY: dict[str, dict[str, Any]] = {
    "xlstm": {"hidden_size": 128, "num_hidden_layers": 2, "num_heads": 2, "vocab_size": 100, "chunk_size": 16},
    "rwkv": {"hidden_size": 64, "num_hidden_layers": 2, "attention_hidden_size": 64, "vocab_size": 100},
}


def held(found: Any) -> Iterator[Any]:
    """The floating-point tensors inside; a counter of positions is none."""
    if isinstance(found, torch.Tensor):
        if found.is_floating_point():
            yield found
        return
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, (list, tuple)) else None
    for item in vars(found).values() if inside is None and hasattr(found, "__dict__") else inside or ():
        yield from held(item)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("model_type", TINY)
def test_states(model_type: str, dtype: str) -> None:
    names = {"xlstm": ("xLSTMConfig", "xLSTMForCausalLM"), "rwkv": ("RwkvConfig", "RwkvForCausalLM")}[model_type]
    config = getattr(transformers, names[0])(**TINY[model_type])
    model = getattr(transformers, names[1])(config).to(getattr(torch, dtype)).eval()
    with torch.no_grad():
        out = model(input_ids=torch.arange(16)[None], use_cache=True)
    state = out.cache_params if model_type == "xlstm" else out.state
    expected = sum(tensor.numel() * tensor.element_size() for tensor in held(state))
    data = config.to_diff_dict() | {"model_type": model_type, "dtype": dtype}
    assert kv_cache(read_config(data), 16, engine="transformers").allocated_bytes == expected


def test_rwkv_keeps_its_last_inputs_whole_on_every_rank() -> None:
    """Every matrix is cut by outputs and reads the whole vector; the three sums a channel are cut."""
    data = {"model_type": "rwkv", "dtype": "float32", **TINY["rwkv"]}
    one, half = (kv_cache(read_config(data), 16, engine="transformers", tp=tp).allocation for tp in (1, 2))
    assert one is not None
    assert half is not None
    assert one.per_device_bytes == 2 * 5 * 64 * 4
    assert half.per_device_bytes == 2 * (3 * 32 + 2 * 64) * 4
