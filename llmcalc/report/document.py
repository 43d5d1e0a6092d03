"""The JSON document as a schema: what scripts may rely on. Keys may be added under the same schema name."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field  # noqa: TID253  (imported by those who validate, never by a verb)


class ModelBlock(BaseModel):
    """Which model a document speaks of."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    source: Literal["catalog", "local", "stdin", "hub", "gguf"]
    revision: str | None
    sha256: str


class Document(BaseModel):
    """One answer: integers are bytes, parameters, operations and tokens, the unit is in the key."""

    model_config = ConfigDict(extra="allow", strict=True)

    schema_: Literal["llmcalc/1"] = Field(alias="schema")
    version: str
    command: str
    model: ModelBlock | None
    inputs: dict[str, Any]
    assumptions: list[str]
    results: dict[str, Any]
    warnings: list[str]


def json_schema() -> dict[str, Any]:
    """The JSON schema of every document."""
    return Document.model_json_schema(by_alias=True)
