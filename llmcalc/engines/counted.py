"""What a counter of matrix products sees in the classes of transformers 5.24 beyond the definitions, a row a family.

Measured with ``torch.utils.flop_counter`` on the meta device, eager attention, experts through batched products.
"""

from __future__ import annotations

from llmcalc.arch.mixing import Library
from llmcalc.arch.model import Architecture

LIBRARY: dict[str, Library] = {
    # modeling_longt5.py cuts sequences into blocks of radius + 1 and multiplies each with three.
    "longt5": Library(blocks=True),
    # Their local layers mask, but keep and multiply every position.
    "gpt_neo": Library(full_keys=True),
    # Later steps convolve element by element.
    "recurrent_gemma": Library(full_keys=True, conv_again=-1),
    # The class counts the query itself in its window, the file does not.
    "mimo_v2_flash": Library(window=1),
    # modeling_doge.py makes the mask of every cached position anew.
    "doge": Library(recomputes=("dt_proj.weight",)),
}
PLAIN = Library()


def library(architecture: Architecture) -> Library:
    """What the family's classes compute beyond the definitions."""
    return LIBRARY.get(architecture.decoder_type or architecture.model_type, PLAIN)
