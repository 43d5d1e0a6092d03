"""Option values without typer's machinery, where they need none.

Typer builds a pydantic validator for every option of a verb, given or not: that takes longer than most answers. A value
that was left out, is text already, or has a parser of ours is read here; whatever is not recognised goes its usual way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def read_at_once(params: Iterable[Any]) -> None:
    """Let these parameters (typer's) read their values directly where that is enough."""
    for param in params:
        if "process_value" not in vars(param):
            param.process_value = _Reader(param)


class _Reader:
    """What stands in for ``process_value`` of one parameter."""

    def __init__(self, param: Any) -> None:
        self.param = param
        self.usual = param.process_value
        described = getattr(param, "type_descriptor", None)
        parser = getattr(getattr(described, "parameter_info", None), "parser", None)
        self.read = parser or (str if getattr(described, "annotation", None) is str else None)

    def __call__(self, ctx: Any, value: Any) -> Any:
        param = self.param
        left_out = value is None or ctx.get_parameter_source(param.name).name == "DEFAULT"
        if (param.required and value is None) or not (left_out or self._readable(value)):
            return self.usual(ctx, value)
        if value is None and param.multiple:
            value = ()
        found = value if left_out or self.read is None else self.read(value)
        return found if param.callback is None else param.callback(ctx, param, found)

    def _readable(self, value: Any) -> bool:
        return self.read is not None and isinstance(value, str) and not self.param.multiple
