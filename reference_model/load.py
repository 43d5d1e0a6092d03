"""Weights from a checkpoint folder: safetensors read by name, and turned into the decoder's own parameters.

A file may fuse matrices (q, k and v in one; gate and up in one; all experts in one) or call them otherwise.
:mod:`llmcalc.arch.names` says which tensor holds which parameters; how the rows of a fused one lie is said here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn

from llmcalc.arch.names import Stored, groups
from llmcalc.errors import MalformedConfigError, NotFoundError
from reference_model.block import Block, Part
from reference_model.decoder import Decoder, Stream
from reference_model.shared import renamed

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def read_file(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of one safetensors file: 8 bytes of length, a JSON header, the data."""
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise MalformedConfigError(f"{path}: {name} is {entry['dtype']}, and only plain floats are loaded")
        begin, dtype = start + entry["data_offsets"][0], DTYPES[entry["dtype"]]
        count = prod(entry["shape"])
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=begin) if count else torch.empty(0, dtype=dtype)
        yield name, flat.view(entry["shape"])


def read_folder(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint folder."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise NotFoundError(f"{folder}: no safetensors files")
    return {name: tensor for path in files for name, tensor in read_file(path)}


# -- our names ---------------------------------------------------------------------------------------------------


def _of_part(part: Part, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for place, name in part.names.items():
        made = getattr(part, place)
        if made is not None:
            yield f"{prefix}.{name}" if name else prefix, made
    for branch in part.branches:
        assert isinstance(branch, Part)
        yield from _of_part(branch, prefix)


def _of_stream(stream: Stream) -> Iterator[tuple[str, nn.Module]]:
    for ends in (stream.stem, stream.tail):
        for name, _, made in ends.each():
            yield name, made
    for index, block in enumerate(stream.blocks):
        assert isinstance(block, Block)
        for part in block.parts:
            assert isinstance(part, Part)
            yield from _of_part(part, f"{stream.prefix}.{index}")
        for name, made in block.residual_modules():
            yield f"{stream.prefix}.{index}.{name}" if name else f"{stream.prefix}.{index}", made


def parameters(model: Decoder) -> dict[str, Tensor]:
    """Every parameter and stored buffer under the name that the architecture gives it."""
    out = {}
    for stream in (model.main, model.encoder):
        for prefix, made in _of_stream(stream) if stream is not None else ():
            for name, tensor in (*made.named_parameters(), *made.named_buffers()):
                out[f"{prefix}.{name}"] = tensor
    return out


# -- from the file's names to ours -------------------------------------------------------------------------------


def _heads(model: Decoder, name: str) -> int:
    """Key heads of the mixer that a parameter belongs to, by which a fused matrix may be cut."""
    for prefix, made in _of_stream(model.main):
        spec = getattr(made, "spec", None)
        if name.startswith(f"{prefix}.") and spec is not None:
            return getattr(spec, "num_key_value_heads", 0) or getattr(spec, "num_heads", 1)
    return 1


def _grouped(tensor: Tensor, sizes: list[int], heads: int) -> list[Tensor]:
    """Key head by key head: its queries, its key, its value."""
    rows = tensor.unflatten(0, (heads, -1))
    return [part.flatten(0, 1) for part in rows.split([size // heads for size in sizes], 1)]


def _codegen(tensor: Tensor, sizes: list[int], _heads: int) -> list[Tensor]:
    """Four pieces, for four cores, of query, value, key."""
    rows = tensor.unflatten(0, (4, 3, sizes[0] // 4))
    return [rows[:, place].flatten(0, 1) for place in (0, 2, 1)]


def _alternating(tensor: Tensor, sizes: list[int], _heads: int) -> list[Tensor]:
    """A row of gate, a row of up."""
    return [tensor[place :: len(sizes)] for place in range(len(sizes))]


# How the rows of a fused tensor lie where it is not one part after the other.
GROUPED = ("bloom", "falcon", "gpt_neox", "persimmon", "internlm2", "minimax")
ORDERS: dict[tuple[str, str], Callable[[Tensor, list[int], int], list[Tensor]]] = {
    ("gpt_oss", "gate_proj"): _alternating,
    ("codegen", "q_proj"): _codegen,
    **{(family, "q_proj"): _grouped for family in GROUPED},
}


def _pieces(model: Decoder, item: Stored, tensor: Tensor, shapes: list[torch.Size], expert: int) -> Iterator[
    tuple[str, Tensor]
]:  # fmt: skip
    """What one stored tensor holds, part by part and expert by expert, under our names."""
    experts = [expert]
    if "{}" in item.holds[0] and len(item.shape) > len(shapes[0]):
        experts, matrices = list(range(len(tensor))), list(tensor)
    elif "{}" in item.holds[0] and item.shape[0] > sum(shape[0] for shape in shapes):
        experts = list(range(item.shape[0] // sum(shape[0] for shape in shapes)))
        matrices = list(tensor.chunk(len(experts), 0))
    else:
        matrices = [tensor]
    family = model.architecture.decoder_type
    first = item.holds[0].rsplit(".", 2)[-2] if "." in item.holds[0] else ""
    order = ORDERS.get((family, first))
    for number, matrix in zip(experts, matrices, strict=True):
        turned = matrix.T if item.transposed else matrix
        sizes = [shape[0] if len(shape) else 1 for shape in shapes]
        if len(item.holds) == 1:
            parts = [turned]
        else:
            parts = order(turned, sizes, _heads(model, item.holds[0])) if order else list(turned.split(sizes))
        for name, part in zip(item.holds, parts, strict=True):
            yield name.replace("{}", str(number)), part


def translated(model: Decoder, tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The file's tensors under our names, group by group in the spelling that the file has."""
    places, tensors = parameters(model), renamed(model.architecture, tensors)
    for group in groups(model.architecture):
        chosen = next(
            (spelling for spelling in group.spellings if all(item.name in tensors for item in spelling)), None
        )
        if chosen is None:
            continue
        seen: dict[str, int] = {}
        for item in chosen:
            expert = seen.get(item.holds[0], 0)
            seen[item.holds[0]] = expert + 1
            names = [name.replace("{}", str(expert)) for name in item.holds]
            if all(name in places for name in names):
                shapes = [places[name].shape for name in names]
                yield from _pieces(model, item, tensors[item.name], shapes, expert)


@torch.no_grad()
def load_tensors(model: Decoder, tensors: dict[str, Tensor]) -> None:
    """Fill every parameter.

    Raises: MalformedConfigError: where a parameter has no tensor, or one of another size.
    """
    places, filled = parameters(model), set()
    for name, tensor in translated(model, tensors):
        if places[name].numel() != tensor.numel():
            raise MalformedConfigError(f"{name}: {list(tensor.shape)} in the file, {list(places[name].shape)} here")
        places[name].copy_(tensor.reshape(places[name].shape))
        filled.add(name)
    left = sorted(set(places) - filled)
    if left:
        raise MalformedConfigError("nothing in the file for " + ", ".join(left[:8]) + (" ..." if len(left) > 8 else ""))


def load(model: Decoder, folder: Path) -> Decoder:
    """Fill a decoder from a folder with ``*.safetensors``."""
    load_tensors(model, read_folder(folder))
    return model
