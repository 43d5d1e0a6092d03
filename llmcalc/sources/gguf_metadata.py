"""The metadata of a GGUF file under the names of its own architecture."""

from __future__ import annotations

from llmcalc.errors import MalformedConfigError
from llmcalc.sources.gguf_header import GgufHeader, Skipped, Value

Fields = dict[str, object]


class Gguf:
    """The metadata of one file by the names of its own architecture, and the shapes of its tensors."""

    def __init__(self, header: GgufHeader, where: str) -> None:
        self.where, self.metadata = where, header.metadata
        found = self.metadata.get("general.architecture")
        if not isinstance(found, str) or not found:
            raise MalformedConfigError(f"{where}: general.architecture is missing, so the model's kind is not known")
        self.arch = found
        self.shapes = {tensor.name: tensor.shape for tensor in header.tensors}
        self.dtypes = {tensor.dtype for tensor in header.tensors if len(tensor.shape) > 1}

    def value(self, key: str) -> Value | None:
        """``{arch}.key``."""
        return self.metadata.get(f"{self.arch}.{key}")

    def number(self, key: str, otherwise: int | None = None) -> int:
        """A whole number, or what a list of equal ones holds (zeros apart, which stand for layers without).

        Raises: MalformedConfigError where it is missing and there is no other value, or is no one number.
        """
        value = self.value(key)
        if isinstance(value, tuple):
            kinds = {item for item in value if item} or {0}
            value = kinds.pop() if len(kinds) == 1 else value
        if value is None and otherwise is not None:
            return otherwise
        if type(value) is not int or value < 0:
            raise MalformedConfigError(f"{self.where}: {self.arch}.{key} is {_shown(value)}, expected a whole number")
        return value

    def numbers(self, key: str) -> list[int] | None:
        """A list, one number a layer; a single number repeated; None where it is missing."""
        value = self.value(key)
        if value is None or isinstance(value, Skipped):
            return None
        items = value if isinstance(value, tuple) else (value,) * self.number("block_count")
        if not all(type(item) in (int, bool) for item in items):
            raise MalformedConfigError(f"{self.where}: {self.arch}.{key} is {_shown(value)}, expected whole numbers")
        return [int(item) for item in items]

    def real(self, key: str) -> float | None:
        """A number that no size depends on; stored in 32 bits, it is meant as the shortest decimal that they hold."""
        value = self.value(key)
        return float(f"{value:.7g}") if isinstance(value, int | float) and not isinstance(value, bool) else None

    def has(self, name: str) -> bool:
        """Whether a tensor is there, in any block where the name says ``blk.*``."""
        return self.first(name) is not None

    def first(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor, of the first block that has it where the name says ``blk.*``."""
        if "*" not in name:
            return self.shapes.get(name)
        found = (
            self.shapes.get(name.replace("*", str(index))) for index in range(min(self.number("block_count"), 4096))
        )
        return next((shape for shape in found if shape is not None), None)

    def rows(self, name: str) -> int | None:
        """The outputs of a matrix, the length of a vector."""
        shape = self.first(name)
        return shape[0] if shape else None


def _shown(value: object) -> str:
    return (
        f"a list of {value.length:,}"
        if isinstance(value, Skipped)
        else "missing"
        if value is None
        else f"{value!r:.60}"
    )
