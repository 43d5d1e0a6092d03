"""Exact bytes of a checkpoint by component, from its headers: each tensor under the branch of the weights it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmcalc.arch.model import Architecture, Stack, branch_of
from llmcalc.calc.headers import Header, tensor_bytes
from llmcalc.calc.verify import module_of, owner_of, verify

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
    holds = verify(architecture, tensors, dialect).holds
    branches = dict(_branches(architecture, dialect))
    modules = {module_of(name): ours for name, ours in holds.items()}
    parts: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        ours = holds.get(tensor.name) or modules.get(owner_of(tensor.name), "")
        stack, branch = branches.get(ours, HEADS if ours.startswith("mtp.") else BESIDE)
        inner = parts.setdefault(stack, {})
        inner[branch] = inner.get(branch, 0) + tensor_bytes(tensor)
    return parts


def _branches(architecture: Architecture, dialect: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every name of the list, as groups() numbers the blocks, with its stack and branch."""
    for stack in architecture.stacks:
        yield from _of_stack(stack, 0)
    decoder = architecture.decoder
    for stack in architecture.mtp:
        yield from _of_stack(stack, len(decoder.calls) if dialect or stack.prefix == decoder.prefix else 0)


def _of_stack(stack: Stack, shift: int) -> Iterator[tuple[str, tuple[str, str]]]:
    for named in (*stack.stem, *stack.tail):
        for weight in named.weights():
            yield weight.name, (stack.name, branch_of(named.spec, weight))
    for layer, members in stack.groups:
        for named in layer.leaves():
            for weight in named.weights():
                local = weight._replace(name=weight.name.removeprefix(f"{named.name}."))
                place = (stack.name, branch_of(named.spec, local))
                yield from ((f"{stack.prefix}.{index + shift}.{weight.name}", place) for index in members)
