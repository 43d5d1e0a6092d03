"""The answer of ``llmcalc kv-cache`` as a report: keys, sentences and the table."""

from __future__ import annotations

from typing import Any

from llmcalc.arch.model import Architecture
from llmcalc.calc.cache import CacheEstimate
from llmcalc.cli.options import without_effect
from llmcalc.cli.output import model_block
from llmcalc.engines.base import Allocation
from llmcalc.formats import find, is_auto
from llmcalc.loading import Model
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import counted, show_bytes, show_memory, words


def report(model: Model, estimate: CacheEstimate, inputs: dict[str, Any]) -> Report:
    """The estimate as a report."""
    told = estimate.allocation.warnings if estimate.allocation else ()
    beside = without_effect(model.architecture, inputs.get("encoder_tokens"), inputs.get("image_tokens") or 0)
    warnings = [*model.warnings, *_context(model, estimate), *_dtype(model, str(inputs["cache"])), *beside, *told]
    return Report(
        "kv-cache", model_block(model.provenance), inputs, results(estimate, str(inputs["engine"])),
        headline(model, estimate), (table(model, estimate),), estimate.figures,
        (*model.assumptions, *_scales(estimate)), warnings,
    )  # fmt: skip


def results(estimate: CacheEstimate, engine: str) -> dict[str, object]:
    """The keys of the JSON document."""
    out: dict[str, object] = {
        "total_bytes": estimate.total_bytes,
        "kv_bytes": estimate.kv_bytes,
        "recurrent_bytes": estimate.recurrent_bytes,
        "bytes_per_sequence": estimate.bytes_per_sequence,
        "bytes_per_token": estimate.bytes_per_token,
        "next_token_bytes": estimate.next_token_bytes,
        "cache_format": estimate.cache_format,
        "tokens": estimate.tokens,
        "batch": estimate.batch,
        "total_tokens": estimate.total_tokens,
        "layers": [
            {
                "kind": r.kind,
                "count": r.layers,
                "bytes": r.bytes,
                "bytes_per_token": r.bytes_per_token,
                "arrays": list(r.arrays),
            }
            for r in estimate.layers
        ],
        "every_layer_full_bytes": estimate.every_layer_full_bytes,
        "mla_expanded_bytes": estimate.mla_expanded_bytes,
    }
    if engine != "none":
        out |= reserved(estimate)
    if estimate.per_device_bytes is not None:
        out["per_device_bytes"] = estimate.per_device_bytes
    return out


def reserved(estimate: CacheEstimate) -> dict[str, object]:
    """What the engine takes, as JSON; figures of blocks, slots and the log are those of one device."""
    taken = estimate.allocation
    if taken is None:
        return {}
    out: dict[str, object] = {
        "allocated_bytes": taken.allocated_bytes, "blocks": taken.blocks, "log_line_bytes": taken.log_line_bytes,
        "log_line": taken.log_line or None, "block_tokens": taken.block_tokens, "block_bytes": taken.block_bytes,
        "slots_tokens": taken.slots, "unused_tokens": taken.unused, "pool_reserve_bytes": taken.reserve_bytes,
        "allocated_cache_format": taken.cache_format,
    }  # fmt: skip
    if estimate.per_device_bytes is not None:
        out["allocated_per_device_bytes"] = taken.per_device_bytes
    return out


def headline(model: Model, estimate: CacheEstimate) -> list[str]:
    """The answer in a few lines."""
    each = estimate.bytes_per_sequence
    one = each if isinstance(each, int) else max(each)
    which = "per sequence" if isinstance(each, int) else "in the longest sequence"
    number = counted(estimate.batch, "sequence")
    tokens = counted(estimate.tokens, "token") if isinstance(estimate.tokens, int) else number
    lines = [
        f"{model.provenance.name} · {tokens} · cache in {estimate.cache_format}",
        f"{show_memory(one)} {which}",
    ]
    if estimate.batch > 1:
        size = estimate.total_bytes
        lines.append(f"{show_memory(size)} in {number}")
    lines += growth(model.architecture, estimate)
    if estimate.recurrent_bytes:
        lines.append(f"of this {estimate.recurrent_bytes:,} bytes are recurrent state, which does not grow")
    if estimate.allocation is not None:
        return lines + three(estimate, estimate.allocation)
    if estimate.every_layer_full_bytes not in (None, estimate.total_bytes):
        full = estimate.every_layer_full_bytes or 0
        lines.append(f"were every layer full attention: {show_memory(full)}")
    if estimate.mla_expanded_bytes is not None:
        size = estimate.mla_expanded_bytes
        lines.append(f"were the latents expanded to heads: {show_memory(size)}")
    if estimate.per_device_bytes is not None:
        size = estimate.per_device_bytes
        lines.append(f"the fullest device holds: {show_memory(size)}")
    return lines


def growth(architecture: Architecture, estimate: CacheEstimate) -> list[str]:
    """What a further token adds: now, and in the long run where that is something else."""
    later, now = estimate.bytes_per_token, estimate.next_token_bytes
    if later is None or now is None:
        return []
    if not architecture.states:
        kept = "an encoder keeps no cache: it reads all positions at once" if not architecture.decoder.layers else ""
        return [kept or "its layers keep nothing from one token to the next"]
    lumps = lumpy(architecture)
    if now == later and not lumps:
        return [f"each further token adds {later:,} bytes a sequence" if now else "a further token adds nothing"]
    verb = "adds" if now >= 0 else "frees"
    first = f"the next token {verb} {abs(now):,} bytes a sequence" if now else "the next token adds nothing"
    if lumps:
        return [f"{first}, each further one {later:,} bytes on average in the long run"]
    past = f"each further one adds {later:,} bytes" if later else "a further one adds nothing"
    return [f"{first}; past its windows {past}"]


def lumpy(architecture: Architecture) -> bool:
    """Whether some layer keeps one entry for several tokens, so that tokens do not add the same."""
    return any(held.state.scope.kind in ("compressed", "open", "overlap") for held in architecture.states)


def three(estimate: CacheEstimate, taken: Allocation) -> list[str]:
    """The three numbers that people mean by the cache, and which of them the engine's log shows."""
    full, split = estimate.every_layer_full_bytes, estimate.per_device_bytes is not None
    rows = [
        ("exact arrays", estimate.total_bytes, estimate.per_device_bytes, f"in {estimate.cache_format}"),
        ("the engine takes", taken.allocated_bytes, taken.per_device_bytes, f"in {taken.cache_format}"),
        ("every layer full", full, None, ""),
    ]
    lines = ["", "the three numbers, all sequences" + (", all devices (and the fullest one)" if split else "") + ":"]
    for name, size, device, note in rows:
        if size is not None:
            one = f"; one device {device:,} = {show_bytes(device)}" if split and device is not None else ""
            lines.append(f"  {name:<17} {size:>18,} bytes = {show_bytes(size):<11} {note}{one}".rstrip())
    if taken.blocks is not None and taken.block_bytes is not None:
        where = " on the fullest device" if split else ""
        lines.append(f"{counted(taken.blocks, 'block')} of {taken.block_bytes:,} bytes{where}")
    if taken.slots is not None:
        room = counted(taken.slots, "token")
        lines.append(f"room for {room} where nothing is dropped, {taken.unused:,} of them unused")
    if taken.log_line_bytes is not None:
        size = taken.log_line_bytes
        more = "" if size in (taken.per_device_bytes, taken.allocated_bytes) else ", with what the pool holds back"
        lines.append(f"the log shows the second{more}: {show_memory(size)}, in {taken.log_line}")
    return lines


def table(model: Model, estimate: CacheEstimate) -> Table:
    """One row a kind of layer, and the sum."""
    windows = any(held.state.scope.kind in ("sliding", "chunked") for held in model.architecture.states)
    apart = windows if estimate.bytes_per_token is None else estimate.next_token_bytes != estimate.bytes_per_token
    steady = not apart and not lumpy(model.architecture)
    each = "bytes a token" if steady else "bytes a token, long run"
    columns = (
        Column("layers", "kind"), Column("count", "count", "count"), Column("bytes", "bytes", "bytes"),
        Column(each, "bytes_per_token", "count"), Column("keeps", "arrays"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (words(r.kind), r.layers, r.bytes, r.bytes_per_token, words(", ".join(r.arrays)) or "nothing")
        for r in estimate.layers
    ]
    if len(rows) > 1:
        layers = sum(r.layers for r in estimate.layers)
        rows.append(("total", layers, estimate.total_bytes, estimate.bytes_per_token, ""))
    return Table(columns, tuple(rows))


def _context(model: Model, estimate: CacheEstimate) -> list[str]:
    limit = model.architecture.max_position_embeddings
    longest = estimate.tokens if isinstance(estimate.tokens, int) else max(estimate.tokens)
    if limit is None or longest <= limit:
        return []
    verb = "is" if longest == 1 else "are"
    where = f"the {limit:,} positions that the config names (max_position_embeddings)"
    return [f"{counted(longest, 'token')} {verb} past {where}"]


def _dtype(model: Model, cache: str) -> list[str]:
    """The model's dtype, where nobody named one and an array here is stored in it."""
    a = model.architecture
    used = (is_auto(cache) and a.cache_format is None) or any(held.state.dtype == "model" for held in a.states)
    return [f"the config names no dtype; {a.dtype} is taken"] if a.dtype_assumed and used else []


def _scales(estimate: CacheEstimate) -> list[str]:
    """What a format leaves out of the cache: the scale of a whole tensor."""
    formats = (find(name) for name in dict.fromkeys(estimate.cache_format.split(":")))
    return [f"{fmt.name}: {fmt.source}" for fmt in formats if fmt.source.startswith("one scale")]
