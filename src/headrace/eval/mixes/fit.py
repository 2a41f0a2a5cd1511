"""The best mix of kinds for a size, or the smallest for a divergence, and the curve between.

A round measures mixes around the best that is known (`sensitivity`), and from all of them the best
mix is found anew: around it the next round is held, until the best one stays or is well surrounded.
What a matrix costs is so measured where it counts, among others that are rounded as they will be.
Whole mixes are judged on windows that no choice was made from; what they diverge by there over what
was predicted is the factor.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.errors import ConfigError
from headrace.eval.mixes.candidates import Group
from headrace.eval.mixes.measurements import Mean, Measurements, Round, key_of, mean_of
from headrace.eval.mixes.sensitivity import neighbours, sensitivities, unmeasured
from headrace.eval.mixes.variants import Variants
from headrace.weights.codecs import Codec
from headrace.weights.quantize.allocate import Item, cheapest

# Rounds around mixes of about the size that is wanted: the third changes the choice little.
_ROUNDS = 3
_SAME_SIZE = 1.1
"""Ratio of sizes."""
# Of the search for a divergence: each takes the factor of the last.
_MOST_CORRECTIONS = 6
_TIGHTENING = 0.9
"""Of the goal, after a mix that diverges by more than the target."""
_CURVE_BITS = 2.5, 8.5
"""Per weight, between which the points of a curve lie: about IQ2_M's, below which little is left of
models that were not trained for it, and Q8_0's, above which little is gained."""


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
    """Divergence as predicted from measured mixes, without the factor."""
    measured: Mean | None = None


@dataclass(frozen=True)
class Fit:
    """The mix that was chosen."""

    point: Point
    curve: tuple[Point, ...]
    """By rising size, the chosen one among them."""
    factor: float
    """Measured divergence of the chosen mix over the predicted one."""
    mixes: int
    """Mixes that were chosen by, those of earlier runs among them."""


@dataclass(frozen=True)
class Stage:
    """A measurement that is done."""

    nbytes: int
    """Of the mix's file."""
    judged: bool
    """Whether on the windows that nothing is chosen by."""
    mean: Mean
    number: int
    """From 1, in this round."""
    count: int
    """In this round."""


Choice = tuple[int, ...]
"""Of each group the index of its kind."""


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
        those of even numbers are chosen by, the others judge mixes.
        """
        self._variants, self._groups, self._other_bytes = variants, groups, other_bytes
        self._measurements, self._progress = measurements, progress
        self._choosing, self._judging = range(0, windows, 2), range(1, windows, 2)
        self._free = any(len(group.kinds) > 1 for group in groups)
        self._known = unmeasured(groups)
        self._places = [{kind.name: at for at, kind in enumerate(group.kinds)} for group in groups]

    def fit(self, target: Target, curve_points: int) -> Fit:
        """The mix for `target`, and `curve_points` more that are measured.

        Raises ConfigError for a target that no mix reaches, with what can be reached.
        """
        self._check(target)
        point, factor = self._chosen(target)
        curve = [point]
        for size in self._curve_sizes(curve_points):
            other = self._point(self._best(Target(nbytes=size)))
            if all(other.kinds != each.kinds for each in curve):
                curve.append(self._judged(other, len(curve), curve_points + 1))
        count = sum(map(self._is_choice, self._measurements.chosen_by))
        return Fit(point, tuple(sorted(curve, key=lambda each: each.nbytes)), factor, count)

    def _chosen(self, target: Target) -> tuple[Point, float]:
        """The mix for the target, judged, and the factor of its prediction."""
        if target.kl is None:
            self._settle(target)
            point = self._judged(self._point(self._least_measured(target)), 1, 1)
            return point, _factor(point)
        factor, tightening = 1.0, 1.0
        good: list[Point] = []
        closest = float("inf")
        for number in range(1, _MOST_CORRECTIONS + 1):
            goal = Target(kl=target.kl / factor * tightening)
            self._settle(goal)
            point = self._judged(self._point(self._best(goal)), number, number)
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

    def _settle(self, target: Target) -> None:
        """Hold rounds until the best mix for the target is the middle of one, or near several."""
        if not self._free:
            return
        if not self._rounds() and target.nbytes is None:
            # Nothing tells yet how much any mix diverges.
            smallest, largest = self._bounds()
            self._hold_round(self._best(Target(nbytes=math.isqrt(smallest * largest))))
        while True:
            self._learn(target)
            middle = self._best(target)
            size = self._nbytes(middle)
            near = [
                each
                for each in self._rounds()
                if max(size, each.nbytes) <= _SAME_SIZE * min(size, each.nbytes)
            ]
            key = self._key(middle)
            if len(near) >= _ROUNDS or any(key == each.mixes[0] for each in near):
                return
            self._hold_round(middle)

    def _hold_round(self, middle: Choice) -> None:
        """Measure mixes around this one. They hang on nothing but it, so that a search that was
        interrupted takes the same ones up again.
        """
        key = self._key(middle)
        rng = np.random.default_rng(list(hashlib.sha256(key.encode()).digest()[:16]))
        mixes = list(dict.fromkeys([middle, *neighbours(self._groups, middle, rng)]))
        for number, mix in enumerate(mixes, 1):
            self._measured(mix, number, len(mixes))
        keys = tuple(self._key(mix) for mix in mixes)
        self._measurements.end_round(Round(self._nbytes(middle), keys))

    def _learn(self, target: Target) -> None:
        """Fit sensitivities to all rounds, best near the target."""
        rounds = self._rounds()
        if not rounds:
            return
        found = self._measurements.chosen_by
        keys = list(dict.fromkeys(key for each in rounds for key in each.mixes))
        errors = np.array([self._errors(key) for key in keys])
        divergences = np.maximum(1e-12, [found[key].mean for key in keys])

        def apart(of: Round) -> float:
            if target.kl is not None:
                return abs(float(np.log(max(1e-12, found[of.mixes[0]].mean) / target.kl)))
            return abs(float(np.log(of.nbytes / (target.nbytes or 1))))

        nearest = min(reversed(rounds), key=apart)
        near = max(1e-12, found[nearest.mixes[0]].mean)
        self._known = sensitivities(errors, divergences, near)

    def _errors(self, key: str) -> list[float]:
        pairs = zip(self._groups, self._choice_of(key), strict=True)
        return [group.errors[at] for group, at in pairs]

    def _measured(self, mix: Choice, number: int, count: int) -> Mean:
        """The divergence on the windows that are chosen by."""
        return self._mean(self._measurements.chosen_by, mix, number, count)

    def _judged(self, point: Point, number: int, count: int) -> Point:
        mix = self._choice(point)
        return replace(point, measured=self._mean(self._measurements.judged, mix, number, count))

    def _mean(self, found: dict[str, Mean], mix: Choice, number: int, count: int) -> Mean:
        key, judged = self._key(mix), found is self._measurements.judged
        mean = found.get(key)
        if mean is None:
            windows = self._judging if judged else self._choosing
            mean = mean_of(self._variants.divergences(self._groups, self._kinds(mix), windows))
            self._measurements.add(found, key, mean)
        self._progress(Stage(self._nbytes(mix), judged, mean, number, count))
        return mean

    def _least_measured(self, target: Target) -> Choice:
        """The best mix, or the middle of a round that fits as well and was measured as better."""
        best = self._best(target)
        if not self._free:
            return best
        fitting = {self._key(best): self._measured(best, 1, 1).mean}
        for each in self._rounds():
            if each.nbytes <= (target.nbytes or 0):
                fitting[each.mixes[0]] = self._measurements.chosen_by[each.mixes[0]].mean
        key = min(fitting, key=lambda each: fitting[each])
        return self._choice_of(key)

    def _best(self, target: Target) -> Choice:
        """The best mix by what is known."""
        sizes = [np.array(group.sizes, np.float64) for group in self._groups]
        costs = [self._known.costs(group, number) for number, group in enumerate(self._groups)]
        if target.nbytes is not None:
            items = [Item(size, cost) for size, cost in zip(sizes, costs, strict=True)]
            chosen = cheapest(items, target.nbytes - self._other_bytes)
        else:
            items = [Item(cost, size) for size, cost in zip(sizes, costs, strict=True)]
            chosen = cheapest(items, max(0.0, (target.kl or 0.0) - self._known.rest))
        if chosen is None:
            raise ConfigError(
                f"--target-kl {target.kl:g}: the kinds that --tensor-type names alone diverge by "
                "more; raise the target or name larger kinds"
            )
        return tuple(chosen)

    def _point(self, mix: Choice) -> Point:
        pairs = list(zip(self._groups, self._kinds(mix), strict=True))
        costs = sum(
            float(self._known.costs(group, number)[mix[number]])
            for number, group in enumerate(self._groups)
        )
        return Point(
            {name: kind for group, kind in pairs for name in group.tensors},
            self._nbytes(mix),
            costs + (self._known.rest if costs else 0.0),
        )

    def _choice(self, point: Point) -> Choice:
        return tuple(group.kinds.index(point.kinds[group.tensors[0]]) for group in self._groups)

    def _rounds(self) -> list[Round]:
        """The rounds whose mixes can all be chosen. Others were held with other kinds to choose
        among, as when --tensor-type named them.
        """
        found = self._measurements.chosen_by
        return [
            each
            for each in self._measurements.rounds
            if all(key in found and self._is_choice(key) for key in each.mixes)
        ]

    def _is_choice(self, key: str) -> bool:
        names = key.split(",")
        return len(names) == len(self._places) and all(
            name in places for name, places in zip(names, self._places, strict=True)
        )

    def _choice_of(self, key: str) -> Choice:
        pairs = zip(key.split(","), self._places, strict=True)
        return tuple(places[name] for name, places in pairs)

    def _kinds(self, mix: Choice) -> list[Codec]:
        return [group.kinds[at] for group, at in zip(self._groups, mix, strict=True)]

    def _key(self, mix: Choice) -> str:
        return key_of(self._kinds(mix))

    def _nbytes(self, mix: Choice) -> int:
        sizes = (group.sizes[at] for group, at in zip(self._groups, mix, strict=True))
        return self._other_bytes + sum(sizes)

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
        """Sizes at equal ratios between those of `_CURVE_BITS`; none is smaller than the smallest
        file.
        """
        smallest, _ = self._bounds()
        low, high = (self._size_at(bits) for bits in _CURVE_BITS)
        return [max(smallest, int(size)) for size in np.geomspace(low, high, count + 2)[1:-1]]

    def _size_at(self, bits: float) -> float:
        """Of the file with so many bits for each weight of a group, where its kinds allow that."""
        size = float(self._other_bytes)
        for group in self._groups:
            num_values = 8 * group.sizes[-1] / group.kinds[-1].bits_per_weight
            size += min(max(num_values * bits / 8, group.sizes[0]), group.sizes[-1])
        return size


def _factor(point: Point) -> float:
    """What was measured over what was predicted; 1 where that is nothing."""
    if point.measured is None or not point.predicted:
        return 1.0
    return max(point.measured.mean, 1e-12) / point.predicted
