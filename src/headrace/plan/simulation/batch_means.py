"""How far chance may move a figure of a simulation: batch means.

Requests that follow each other share a queue, so they are not independent and the usual error of a
mean is too small. The run is cut into parts in the order of arrivals, the figure is computed of
each part, and the spread of the parts gives the interval (Law and Kelton, Simulation Modeling and
Analysis, 9.5.3). A load that changes over the run, as that of a day, makes it wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from headrace.plan.simulation.finished import Column

PARTS = 10
FEWEST_OF_A_PART = 20
# 97.5 % quantile of Student's t with PARTS - 1 degrees of freedom.
_T = 2.262


def band_of(values: Column, measure: Callable[[Column], float]) -> tuple[float, float]:
    """95 % interval of `measure` of `values`, which are in order of arrival and not below 0.

    From the least to the greatest value where there are too few for parts of 20.
    """
    value = measure(values)
    if values.size < PARTS * FEWEST_OF_A_PART:
        return float(values.min()), float(values.max())
    parts = [measure(part) for part in np.array_split(values, PARTS)]
    mean = sum(parts) / PARTS
    half = _T * math.sqrt(sum((one - mean) ** 2 for one in parts) / (PARTS - 1) / PARTS)
    return max(0.0, value - half), value + half
