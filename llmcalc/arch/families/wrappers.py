"""Models with towers: find the language model's own block, read it by its family, add what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module

from llmcalc.arch.defaults import class_defaults
from llmcalc.arch.families import registry
from llmcalc.arch.families.tasks import TEXT_ALONE, class_name
from llmcalc.arch.families.towers import READERS, projectors, tower
from llmcalc.arch.families.towers.parts import tensor
from llmcalc.arch.families.wraps import INERT, ROWS, TEXT_INERT, Wrapper
from llmcalc.arch.families.wraps_later import LATER
from llmcalc.arch.fields import ABSENT, Fields
from llmcalc.arch.model import Architecture, Named, Stack, StackName
from llmcalc.errors import UnsupportedArchitectureError

TEXT = ("text_config", "llm_config", "language_config", "language_model_config", "lm_config")
SIZES = ("max_position_embeddings", "model_max_length")


def read(fields: Fields) -> Architecture:
    """A wrapper by its row of the table."""
    row = ROWS.get(fields.model_type) or LATER[fields.model_type]
    fields.ignore(*INERT, *row.inert)
    owner = fields
    if row.thinker:
        owner = fields.child("thinker_config", model_type=row.thinker) or fields
        owner.ignore(*INERT, *row.inert)
    text = text_block(fields, owner, row)
    text.ignore(*TEXT_INERT, *row.text_inert)
    architecture = rename(_reader(text)(text), row)
    if class_name(fields) in TEXT_ALONE:
        fields.notes.assume("the class that the file names is the language model alone; its towers are not counted")
        fields.ignore(*(side.field for side in row.sides))
        return architecture
    towers, missing = _towers(owner, row, architecture.hidden_size)
    beside = tuple(name for name in row.uncounted if fields.explicit(name) not in (ABSENT, None))
    return replace(architecture, towers=towers, uncounted=(*architecture.uncounted, *missing, *beside))


# -- the language model's own block ------------------------------------------------------------------------------


def text_block(root: Fields, fields: Fields, row: Wrapper) -> Fields:
    """The nested block (or the whole file, where the text fields are flat) with what the wrapper decides put in.

    The class that owns the output head decides whether it is tied and whether it is there at all.
    """
    value: object = fields.explicit(TEXT[0], *TEXT[1:])
    flat = value is ABSENT or value is None
    if not flat and not isinstance(value, Mapping):
        raise fields.wrong(TEXT[0], value, "an object")
    data = dict(value) if isinstance(value, Mapping) else dict(fields.data)
    kind = text_type(fields, row, data, flat=flat)
    if row.owner != "text":
        for name in ("architectures", "id2label", "num_labels"):
            value = fields.explicit(name)
            data.pop(name, None)
            if value is not ABSENT:
                data[name] = value
        data["tie_word_embeddings"] = _tied(fields, row, data.get("tie_word_embeddings"), kind)
    if not flat:
        data = {**dict(row.text_values), **data}
    _inherit(root, fields, data)
    if flat:
        text = Fields(
            data, model_type=kind, where=fields.where, path=fields.path, notes=fields.notes,
            overrides=fields.overrides, take_bare=fields.take_bare,
        )  # fmt: skip
        text.read, text.children = fields.read, fields.children
        return text
    key = next(name for name in TEXT if name in fields.data)
    fields.children[key] = fields.block(data, key, kind)
    return fields.children[key]


def _tied(fields: Fields, row: Wrapper, own: object, kind: str) -> bool:
    """Whether the head is tied, by the wrapper's flag, the text block's own, or both (see Wrapper.owner)."""
    outer = fields.flag("tie_word_embeddings")
    inner = bool(class_defaults(kind).values.get("tie_word_embeddings") if own is None else own)
    match row.owner:
        case "either":
            return outer or inner
        case "both":
            return outer and inner
        case "given":
            return outer if fields.has("tie_word_embeddings") else inner
        case _:
            return outer and row.owner == "outer"


def text_type(fields: Fields, row: Wrapper, data: Mapping[str, object], *, flat: bool) -> str:
    """The language model's class: its own name for itself, else the wrapper's default."""
    named = data.get("model_type")
    if flat or not isinstance(named, str) or not named or named == fields.model_type:
        return row.text_type
    known = registry.ALIASES.get(named, named)
    if known not in registry.READERS:
        raise UnsupportedArchitectureError(
            f"{fields.where}: the language model's model_type {named!r} is not known",
            f"{fields.model_type} wraps {row.text_type} unless the file says otherwise",
        )
    return known


def _inherit(root: Fields, fields: Fields, data: dict[str, object]) -> None:
    """Keys that files keep on the wrapper: the number format, the context where the text has none."""
    if data.get("dtype", data.get("torch_dtype")) is None:
        for block in (fields, root):
            value = block.explicit("dtype", "torch_dtype")
            if isinstance(value, str):
                data["dtype"] = value
                break
    if not any(name in data for name in SIZES):
        value = fields.explicit(*SIZES)
        if value is not ABSENT:
            data[SIZES[0]] = value


def _reader(text: Fields) -> Callable[[Fields], Architecture]:
    module = import_module(f"llmcalc.arch.families.{registry.READERS[text.model_type]}")
    function: Callable[[Fields], Architecture] = module.read
    return function


def rename(architecture: Architecture, row: Wrapper) -> Architecture:
    """The language model's weights under the names they have in the wrapper's checkpoint."""

    def new(name: str) -> str:
        if name == "model" or name.startswith("model."):
            return row.text + name.removeprefix("model")
        return row.head + name.removeprefix("lm_head") if name.startswith("lm_head") else name

    def moved(named: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(new(item.name), item.spec) for item in named)

    stack = architecture.decoder
    decoder = replace(stack, prefix=new(stack.prefix), stem=moved(stack.stem), tail=moved(stack.tail))
    ties = tuple((new(alias), new(source)) for alias, source in architecture.ties)
    return replace(architecture, decoder=decoder, ties=ties)


# -- what stands beside it ---------------------------------------------------------------------------------------


def _towers(fields: Fields, row: Wrapper, width: int) -> tuple[tuple[Stack, ...], tuple[str, ...]]:
    stacks: list[Stack] = []
    missing: list[str] = []
    for side in row.sides:
        block = _block(fields, side.field, side.kind, default=side.default)
        if block is None:
            if side == row.sides[0] and not side.optional and fields.explicit(side.field) is ABSENT:
                missing += _elsewhere(fields) or [fields.label(side.field)]
            continue
        block.ignore(*INERT)
        stack = tower(block, side.prefix)
        if stack is None:
            missing.append(fields.label(side.field))
            block.ignore(*block.data)
        elif side.newline:
            stack = replace(stack, tail=(*stack.tail, tensor("image_newline", (width,), "embedding")))
        if stack is not None:
            stacks.append(stack)
        if side.projector:
            kind = projectors.KINDS.get(side.projector)
            if kind is None:
                missing.append(side.joint)
            else:
                joint = projectors.Joint(fields, block, width, side.joint)
                name: StackName = "projector"
                stacks.append(Stack(name, "", (), tuple(kind(joint))))
    return tuple(stacks), tuple(missing)


def _elsewhere(fields: Fields) -> list[str]:
    """The keys under which remote LLaVA code keeps its tower and projector, which no reader describes."""
    named = [name for name in ("mm_vision_tower", "mm_projector_type") if fields.has(name)]
    fields.ignore(*(name for name in fields.data if name.startswith(("mm_", "tune_mm_", "freeze_mm_"))))
    return [fields.label(name) for name in named]


def _block(fields: Fields, name: str, kind: str, *, default: bool) -> Fields | None:
    """A tower's block; ``kind`` where it names no class of its own that a tower reader knows."""
    value = fields.explicit(name)
    if value is ABSENT or value is None:
        if not default:
            return None
        fields.notes.warn(f"{fields.label(name)} is not given: the default tower of {kind} is counted")
        value = {}
    if not isinstance(value, Mapping):
        raise fields.wrong(name, value, "an object")
    named = value.get("model_type")
    known = isinstance(named, str) and (named in READERS or (named and named != fields.model_type and not kind))
    fields.children[name] = fields.block(value, name, str(named) if known else kind, language=False)
    return fields.children[name]
