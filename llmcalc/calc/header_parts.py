"""Which component of a model a checkpoint's tensors belong to: each stands under the branch of the weights it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmcalc.arch.model import Architecture, Stack, branch_of
from llmcalc.calc.headers import Header, tensor_bytes
from llmcalc.calc.verify import Verification, module_of, owner_of, verify

Place = tuple[str, str]
BESIDE = ("beside", "other")
HEADS = ("mtp", "other")


def component_bytes(
    architecture: Architecture, headers: Iterable[Header], dialect: str = ""
) -> dict[str, dict[str, int]]:
    """Bytes by stack and branch of the parameter tree; scales and zeros count where their weights do.

    What no weight of the list is in stands under ``beside``. The parts sum to the total of ``header_bytes`` exactly.
    Args: dialect: ``gguf`` for llama.cpp's names. Raises: UnsupportedFormatError. Checked: tests/headers/test_bytes.py
    """
    tensors = list(headers)
    parts: dict[str, dict[str, int]] = {}
    held = verify(architecture, tensors, dialect)
    for (stack, branch), members in placed(architecture, tensors, held, dialect).items():
        parts.setdefault(stack, {})[branch] = sum(map(tensor_bytes, members))
    return parts


def placed(
    architecture: Architecture, headers: Iterable[Header], held: Verification, dialect: str = ""
) -> dict[Place, list[Header]]:
    """The tensors of every stack and branch, in the order of the parameter tree, those beside it last.

    Args: held: what ``verify`` found of the same headers.
    """
    branches = dict(_branches(architecture, dialect))
    modules = {module_of(name): ours for name, ours in held.holds.items()}
    places: dict[Place, list[Header]] = {place: [] for place in (*branches.values(), HEADS, BESIDE)}
    for header in headers:
        ours = held.holds.get(header.name) or modules.get(owner_of(header.name), ("",))
        places[branches.get(ours[0], HEADS if ours[0].startswith("mtp.") else BESIDE)].append(header)
    return {place: members for place, members in places.items() if members}


def _branches(architecture: Architecture, dialect: str) -> Iterator[tuple[str, Place]]:
    """Every name of the list, as groups() numbers the blocks, with its stack and branch."""
    for stack in architecture.stacks:
        yield from _of_stack(stack, 0)
    decoder = architecture.decoder
    for stack in architecture.mtp:
        yield from _of_stack(stack, len(decoder.calls) if dialect or stack.prefix == decoder.prefix else 0)


def _of_stack(stack: Stack, shift: int) -> Iterator[tuple[str, Place]]:
    for named in (*stack.stem, *stack.tail):
        for weight in named.weights():
            yield weight.name, (stack.name, branch_of(named.spec, weight))
    for layer, members in stack.groups:
        for named in layer.leaves():
            for weight in named.weights():
                local = weight._replace(name=weight.name.removeprefix(f"{named.name}."))
                place = (stack.name, branch_of(named.spec, local))
                yield from ((f"{stack.prefix}.{index + shift}.{weight.name}", place) for index in members)
