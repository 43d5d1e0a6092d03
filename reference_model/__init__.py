"""A decoder to read in one sitting, which nonetheless has every layer kind that the calculator prices.

It is built from the fields of an :class:`~llmcalc.arch.model.Architecture` and never from its lists of weights, states
or operations: that is what makes their agreement evidence. Read ``decoder`` and ``block`` first, then
``attention``, then the rest.
"""

from reference_model.cache import Cache, Formats
from reference_model.decoder import Decoder

__all__ = ["Cache", "Decoder", "Formats"]
