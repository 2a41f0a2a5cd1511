"""How many times as large a share of requests is as another, and how sure that is.

The interval is that of Walter ("The distribution of Levin's measure of attributable risk",
Biometrika 62, 1975): of the ratio's logarithm, with half a request added to each count, so that it
exists where none or all of a run's requests are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from headrace.bench.ratio import Ratio
from headrace.bench.statistics import CONFIDENCE

_HALF = 0.5


def ratio_of_shares(ours: Sequence[bool], base: Sequence[bool]) -> Ratio | None:
    """True is counted. None of no requests, and where none of the base's are counted."""
    if not len(ours) or not any(base):
        return None
    hits, others = sum(ours), sum(base)
    ratio = hits / len(ours) * len(base) / others
    above, below = (hits + _HALF) / (len(ours) + _HALF), (others + _HALF) / (len(base) + _HALF)
    variance = sum(
        1 / (counted + _HALF) - 1 / (of + _HALF)
        for counted, of in ((hits, len(ours)), (others, len(base)))
    )
    reach = math.exp(NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(variance))
    middle = above / below
    # With all of both counted there is no variance left beside the added halves.
    return Ratio(ratio, min(ratio, middle / reach), max(ratio, middle * reach))
