"""What the verbs of speed and capacity read of a model: its config, and how far its checkpoint's headers differ."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.calc.weights import weights
from llmcalc.errors import LlmcalcError
from llmcalc.loading import Model


def priced(found: Model, stored: str) -> Model:
    """The model, with a warning where its checkpoint holds other bytes than these verbs price by the config.

    Args: stored: what ``--weights`` says; a format that was named is priced as named.
    """
    if found.tensors is None or stored != "config":
        return found
    asked = found.provenance.asked or {}
    if asked.get("set"):
        return _warned(found, "--set makes another model of it than the checkpoint's: the weights are the config's")
    # Imported here: most calls have no headers.
    from llmcalc.calc.weights_of_headers import weights_of_headers

    try:
        held = weights_of_headers(found.architecture, found.tensors, found.dialect, held=found.held).total_bytes
        config = weights(found.architecture, stored).total_bytes
    except LlmcalcError as error:
        text = f"the weights are priced by the config: the checkpoint's own headers give no bytes ({error})"
    else:
        if held == config:
            return found
        text = f"the checkpoint's own headers hold {held:,} bytes of weights; priced here are the config's {config:,}"
    return _warned(found, f"{text}: name the stored format with --weights")


def _warned(found: Model, text: str) -> Model:
    return replace(found, architecture=replace(found.architecture, warnings=(*found.warnings, text)))
