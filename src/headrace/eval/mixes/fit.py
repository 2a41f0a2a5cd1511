"""The best mix of kinds for a size, or the smallest for a divergence, and the curve between.

What a mix costs is taken as the sum of what each of its matrices costs alone, in the kind it gets:

    KL(mix) = factor * sum over matrices of KL(only this matrix in its kind)

The factor is measured on the mix that was chosen; what rounded activations add is in it, too.
Divergences of single matrices are measured where they decide: the kinds of the mix that is the best
so far and their neighbours, until the best mix is one of measured kinds; all others are estimated
meanwhile. Whole mixes are measured on windows that no choice was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.errors import ConfigError
from headrace.eval.mixes.candidates import Group
from headrace.eval.mixes.estimate import estimated
from headrace.eval.mixes.measurements import Mean, Measurements, mean_of
from headrace.eval.mixes.variants import Variants
from headrace.weights.codecs import Codec
from headrace.weights.quantize.allocate import Item, cheapest

# Every kind is measured of one matrix in so many, to begin with.
_SAMPLED = 8
# Where the best mix has not settled by then, the next is as good within the errors.
_MOST_ROUNDS = 12
# Of the search for a divergence: each takes the factor of the last.
_MOST_CORRECTIONS = 6
_TIGHTENING = 0.9
"""Of the goal, after a mix that diverges by more than the target."""


@dataclass(frozen=True)
class Target:
    """The target of a search for kinds: one of both."""

    nbytes: int | None = None
    """Of the file, at most."""
    kl: float | None = None
    """Mean divergence in nats, at most."""


@dataclass(frozen=True)
class Point:
    """A mix on the curve."""

    kinds: Mapping[str, Codec]
    """Of each matrix by its name in the file."""
    nbytes: int
    """Of the file."""
    predicted: float
    """The sum of the divergences of its matrices, without the factor."""
    measured: Mean | None = None


@dataclass(frozen=True)
class Fit:
    """The mix that was chosen."""

    point: Point
    curve: tuple[Point, ...]
    """By rising size, the chosen one among them."""
    factor: float
    """Measured divergence of the chosen mix over the predicted one."""
    matrix_measurements: int
    """Pairs of matrix and kind that are measured, those of earlier runs among them."""


@dataclass(frozen=True)
class Stage:
    """A measurement that is done."""

    subject: str
    """A group of matrices, or "mix"."""
    kind: str
    """The kind of the group; of a mix its size in bytes."""
    mean: Mean
    number: int
    """From 1, in this round."""
    count: int
    """In this round."""


class Fitter:
    """The search over one model."""

    def __init__(
        self,
        variants: Variants,
        groups: Sequence[Group],
        other_bytes: int,
        measurements: Measurements,
        windows: int,
        progress: Callable[[Stage], None] = lambda stage: None,
    ) -> None:
        """other_bytes: of the file, without the matrices of the groups. windows: of `variants`;
        those of even numbers are chosen by, the others measure mixes.
        """
        self._variants, self._groups, self._other_bytes = variants, groups, other_bytes
        self._measurements, self._progress = measurements, progress
        self._choosing, self._judging = range(0, windows, 2), range(1, windows, 2)
        self._kinds = sorted({kind.name for group in groups for kind in group.kinds})

    def fit(self, target: Target, curve_points: int) -> Fit:
        """The mix for `target`, and `curve_points` more that are measured.

        Raises ConfigError for a target that no mix reaches, with what can be reached.
        """
        self._check(target)
        self._measure(self._sample())
        point, factor = self._chosen(target)
        curve = [point]
        for size in self._curve_sizes(curve_points):
            other = self._mix(Target(nbytes=size))
            if all(other.kinds != each.kinds for each in curve):
                curve.append(self._measured(other, len(curve), curve_points + 1))
        count = sum(1 for _ in self._known())
        return Fit(point, tuple(sorted(curve, key=lambda each: each.nbytes)), factor, count)

    def _chosen(self, target: Target) -> tuple[Point, float]:
        """The mix for the target, measured, and the factor of its prediction."""
        if target.kl is None:
            point = self._measured(self._settled(target), 1, 1)
            return point, _factor(point)
        factor, tightening = 1.0, 1.0
        good: list[Point] = []
        closest = float("inf")
        for number in range(1, _MOST_CORRECTIONS + 1):
            goal = Target(kl=target.kl / factor * tightening)
            point = self._measured(self._settled(goal), number, number)
            if point.measured is None:
                return point, 1.0
            if point.measured.mean > target.kl:
                closest = min(closest, point.measured.mean)
                tightening *= _TIGHTENING
            elif any(point.kinds == each.kinds for each in good):
                break
            else:
                good.append(point)
            factor = _factor(point)
            if not point.predicted:
                break
        if not good:
            raise ConfigError(
                f"--target-kl {target.kl:g}: the closest of the mixes that were tried diverges by "
                f"{closest:g}; raise the target, or give more --windows to choose by. What was "
                "measured is kept"
            )
        point = min(good, key=lambda each: each.nbytes)
        return point, _factor(point)

    def _settled(self, target: Target) -> Point:
        """The best mix by measured divergences of its matrices."""
        for _ in range(_MOST_ROUNDS):
            point = self._mix(target)
            wanted = [
                (group, kind)
                for group in self._groups
                for kind in self._around(group, point.kinds[group.tensors[0]])
                if self._kl(group, kind) is None
            ]
            if not wanted:
                break
            self._measure(wanted)
        return point

    def _around(self, group: Group, chosen: Codec) -> Iterator[Codec]:
        at = group.kinds.index(chosen)
        yield from group.kinds[max(0, at - 1) : at + 2]

    def _sample(self) -> list[tuple[Group, Codec]]:
        """One kind in the middle for each group, and all of some."""
        wanted = []
        for number, group in enumerate(self._groups):
            middle = group.kinds[len(group.kinds) // 2]
            kinds = group.kinds if number % _SAMPLED == 0 else (middle,)
            wanted += [(group, kind) for kind in kinds if self._kl(group, kind) is None]
        return wanted

    def _kl(self, group: Group, kind: Codec) -> float | None:
        if kind is group.stored:
            return 0.0
        known = self._measurements.of_matrix(group.name, kind)
        return None if known is None else known.mean

    def _known(self) -> Iterator[tuple[str, str, float]]:
        for group in self._groups:
            for kind in group.kinds:
                value = self._kl(group, kind)
                if value is not None and kind is not group.stored:
                    yield group.name, kind.name, value

    def _measure(self, wanted: Sequence[tuple[Group, Codec]]) -> None:
        for number, (group, kind) in enumerate(wanted, 1):
            kinds = dict.fromkeys(group.tensors, kind)
            mean = mean_of(self._variants.of_matrices(kinds, self._choosing))
            self._measurements.add_matrix(group.name, kind, mean)
            self._progress(Stage(group.name, kind.name, mean, number, len(wanted)))

    def _measured(self, point: Point, number: int, count: int) -> Point:
        mean = self._measurements.of_mix(point.kinds)
        if mean is None:
            mean = mean_of(self._variants.of_mix(point.kinds, self._judging))
            self._measurements.add_mix(point.kinds, mean)
        self._progress(Stage("mix", str(point.nbytes), mean, number, count))
        return Point(point.kinds, point.nbytes, point.predicted, mean)

    def _mix(self, target: Target) -> Point:
        """The best mix by what is known and estimated."""
        known: dict[str, dict[str, float]] = {}
        for name, kind, value in self._known():
            known.setdefault(name, {})[kind] = value
        names = [group.name for group in self._groups]
        losses = estimated(known, names, self._kinds)
        sizes = [np.array(group.sizes, np.float64) for group in self._groups]
        costs = [
            np.array(
                [
                    0.0 if kind is group.stored else losses[group.name][kind.name]
                    for kind in group.kinds
                ]
            )
            for group in self._groups
        ]
        if target.nbytes is not None:
            items = [Item(size, cost) for size, cost in zip(sizes, costs, strict=True)]
            chosen = cheapest(items, target.nbytes - self._other_bytes)
        else:
            items = [Item(cost, size) for size, cost in zip(sizes, costs, strict=True)]
            chosen = cheapest(items, target.kl or 0.0)
        if chosen is None:
            raise ConfigError(
                f"--target-kl {target.kl:g}: the kinds that --tensor-type names alone diverge by "
                "more; raise the target or name larger kinds"
            )
        pairs = list(zip(self._groups, chosen, strict=True))
        return Point(
            {name: group.kinds[at] for group, at in pairs for name in group.tensors},
            self._other_bytes + sum(group.sizes[at] for group, at in pairs),
            float(sum(cost[at] for cost, at in zip(costs, chosen, strict=True))),
        )

    def _check(self, target: Target) -> None:
        smallest, largest = self._bounds()
        if target.nbytes is not None and target.nbytes < smallest:
            raise ConfigError(
                f"--target-size {target.nbytes}: the smallest file of this model has {smallest:,} "
                f"bytes, with every matrix in the smallest kind; as it is it has {largest:,}"
            )

    def _bounds(self) -> tuple[int, int]:
        smallest = self._other_bytes + sum(group.sizes[0] for group in self._groups)
        return smallest, self._other_bytes + sum(group.sizes[-1] for group in self._groups)

    def _curve_sizes(self, count: int) -> list[int]:
        """Sizes at equal ratios, from the smallest file to one of some 8 bits a weight."""
        smallest, largest = self._bounds()
        top = min(largest, 4 * smallest)
        return [int(size) for size in np.geomspace(smallest, top, count + 2)[1:-1]] if count else []


def _factor(point: Point) -> float:
    """What was measured over what the matrices cost alone; 1 where these cost nothing."""
    if point.measured is None or not point.predicted:
        return 1.0
    return max(point.measured.mean, 1e-12) / point.predicted
