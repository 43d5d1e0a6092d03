"""What is left of a config once its family has read it: keys nobody used, and those that nobody may overlook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmcalc.arch.aliases import ALIASES
from llmcalc.arch.fields import Fields
from llmcalc.arch.harmless import harmless
from llmcalc.errors import UnsupportedLayerError

# Keys that mean another layout than the one that was read, unless they hold one of the values beside them.
STRUCTURAL: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), (None, 0, 1)),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "index_topk", "ssm_state_size"), (None, 0)),
    "mamba_d_state": (None, 0),
    "attention_head_type": (None, "multihead"),
    "feed_forward_type": (None, "mlp", "dense", "original"),
    "multi_query": (None, False),
    "num_kv_shared_layers": (None, 0),
    "layers_block_type": (None,),
    "hybrid_override_pattern": (None,),
    "block_configs": (None,),
}


def blocks(fields: Fields) -> Iterator[Fields]:
    """The file's top level and every block that was read, outermost first."""
    yield fields
    for child in tuple(fields.children.values()):
        yield from blocks(child)


def refuse_structural(fields: Fields) -> None:
    """Stop at a key that nobody read and that says the layers are others than those that were read.

    Raises: UnsupportedLayerError.
    """
    for block in blocks(fields):
        for key, plain in STRUCTURAL.items():
            if key in block.data and key not in block.read and block.data[key] not in plain and not _known(block, key):
                raise UnsupportedLayerError(
                    f"{block.where}: {block.label(key)} is {block.data[key]!r:.60}, a layout that the reader of "
                    f"{block.model_type or fields.model_type} does not know",
                    "read it as a family that has it with --as FAMILY",
                )


def _known(block: Fields, key: str) -> bool:
    """Whether the class has the field, in any spelling: then this config has a reason not to need it."""
    group = next(({name, *others} for name, others in ALIASES.items() if key == name or key in others), {key})
    return bool(group & {*block.defaults.values, *block.defaults.spellings, *block.read})


def unread_warning(fields: Fields) -> str | None:
    """The keys nobody used, with what they may have been meant to be; None where there are none."""
    found = sorted(_described(block, key) for block in blocks(fields) for key in block.leftover() if not harmless(key))
    if not found:
        return None
    more = f" and {len(found) - 12} more" if len(found) > 12 else ""
    return "config fields that were not used and are not known to be harmless: " + ", ".join(found[:12]) + more


def _described(block: Fields, key: str) -> str:
    near = _close(key, block.asked - set(block.data))
    return f"{block.label(key)} (did you mean {near}?)" if near else block.label(key)


def _close(key: str, names: Iterable[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(key, sorted(names), n=1, cutoff=0.88)), "")
