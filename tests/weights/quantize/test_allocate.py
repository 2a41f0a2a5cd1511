"""The best choice within a limit, against all choices there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.weights.quantize.allocate import Item, cheapest

numbers = st.integers(0, 12).map(float)
items = st.lists(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), min_size=1, max_size=5
)


@given(items, st.integers(0, 60))
def test_no_choice_within_the_limit_costs_less(
    choices: list[list[tuple[float, float]]], limit: int
) -> None:
    made = [Item(*np.array(item).T) for item in choices]
    fitting = [
        sum(cost for _, cost in chosen)
        for chosen in product(*choices)
        if sum(weight for weight, _ in chosen) <= limit
    ]
    found = cheapest(made, limit)
    if not fitting:
        assert found is None
        return
    assert found is not None
    chosen = [item[at] for item, at in zip(choices, found, strict=True)]
    assert sum(weight for weight, _ in chosen) <= limit
    assert sum(cost for _, cost in chosen) == min(fitting)


@pytest.mark.parametrize("limit", [150.0, 350.0, 600.0])
def test_many_items_are_at_most_one_edge_above_the_relaxation(limit: float) -> None:
    rng = np.random.default_rng(3)
    weights = np.array([2.625, 3.4375, 4.25, 4.5, 5.5, 6.5625, 8.5])
    made = [
        Item(weights * size, sensitivity * 2.0 ** (-2 * weights))
        for size, sensitivity in zip(
            rng.uniform(0.1, 1, 150), rng.lognormal(0, 2, 150), strict=True
        )
    ]
    found = cheapest(made, limit)
    lightest = sum(float(item.weights[0]) for item in made)
    if lightest > limit:
        assert found is None
        return
    assert found is not None
    weight = sum(float(item.weights[at]) for item, at in zip(made, found, strict=True))
    cost = sum(float(item.costs[at]) for item, at in zip(made, found, strict=True))
    assert weight <= limit

    # Lagrange: for any price of a unit of weight this is below the best there is.
    def below(price: float) -> float:
        return (
            sum(float((item.costs + price * item.weights).min()) for item in made) - price * limit
        )

    bound = max(below(price) for price in np.geomspace(1e-7, 1, 300))
    assert bound <= cost <= bound * 1.01
