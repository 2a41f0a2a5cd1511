"""Figures of one plan inside another: ids with a name in front, and inputs that follow."""

from __future__ import annotations

from headrace.plan.model.renamed import figure_input, under
from headrace.plan.quantity import Input, Quantity


def test_ids_and_what_they_name_get_the_prefix_and_others_stay() -> None:
    first = Quantity("a", "first", 1.0, "s", "T1", (), 0.5, 2.0)
    other = Input("elsewhere", 3.0, "s", "figure z", "given")
    stated = Input("stated", 4.0, "s", "figures of a", "data sheet")
    second = Quantity("b", "second", 5.0, "s", "F3", (figure_input(first, "it"), other, stated))
    one, two = under("small", (first, second))
    assert (one.id, one.band) == ("small.a", (0.5, 2.0))
    assert two.id == "small.b"
    assert [each.source for each in two.inputs] == ["figure small.a", "figure z", "figures of a"]
    assert two.inputs[0].name == "it" and two.inputs[0].basis == "given"
    assert figure_input(second).basis == "exact"
