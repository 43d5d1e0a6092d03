"""A block that is called twice: its weights once, a cache for each call, and the output of an unrolled model."""

from __future__ import annotations

from dataclasses import replace

import torch

from llmcalc import kv_cache, read_config
from llmcalc.arch.model import Call
from reference_model.cache import Formats
from reference_model.decoder import Decoder
from tests.oracle.cases import CONFIGS
from tests.oracle.corpus import estimated

ORDER = (0, 1, 2, 1, 2, 3)  # blocks 1 and 2 run twice


@torch.no_grad()
def test_looped_blocks() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    plain = read_config({**CONFIGS["mistral"], "num_hidden_layers": 4})
    schedule = tuple(Call(block, depth) for depth, block in enumerate(ORDER))
    looped = replace(plain, decoder=replace(plain.decoder, schedule=schedule))
    unrolled = replace(plain, decoder=replace(plain.decoder, layers=tuple(plain.decoder.layers[b] for b in ORDER)))
    model, other = Decoder(looped).double().eval(), Decoder(unrolled).double().eval()
    for depth, block in enumerate(ORDER):
        other.main.blocks[depth].load_state_dict(model.main.blocks[block].state_dict())
    other.main.stem.load_state_dict(model.main.stem.state_dict())
    other.main.tail.load_state_dict(model.main.tail.state_dict())

    assert sum(parameter.numel() for parameter in model.parameters()) == estimated(looped)
    tokens = torch.randint(0, 128, (2, 20))
    full = model(tokens)
    assert torch.equal(full, other(tokens))
    cache = model.allocate(2, 20)
    pieces = [model(tokens[:, low:high], cache) for low, high in ((0, 11), *((i, i + 1) for i in range(11, 20)))]
    assert float((torch.cat(pieces, 1) - full).abs().max() / full.std()) < 1e-12
    for length in (1, 7, 8, 9, 20):
        held = model.allocate(1, length, Formats(torch.bfloat16, torch.bfloat16)).bytes
        assert held == kv_cache(looped, length, cache="bf16", engine="none").total_bytes
