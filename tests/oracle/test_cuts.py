"""Every cut that the estimates accept can be run, and those that cannot are refused by both."""

from __future__ import annotations

import pytest

from llmcalc import Ranks, weights
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from tests.oracle.corpus import COVERED
from tests.oracle.full_size import built, plain, stated

SAMPLE = COVERED[::3]
DEGREES = (3, 8, 16, 32, 128)


@pytest.mark.parametrize("slug", SAMPLE)
def test_a_rank_can_be_built_where_there_is_a_figure(slug: str) -> None:
    found = plain(slug)
    for tp in DEGREES:
        try:
            expected = built(found, tp)
        except UnsupportedLayerError:
            return  # kinds that the reference decoder cannot share out: nothing is known of their cuts
        except InvalidInputError:
            with pytest.raises(InvalidInputError):
                weights(found, ranks=Ranks(tp))
            continue
        assert stated(found, tp) == expected, tp
