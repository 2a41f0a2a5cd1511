"""What each matrix adds to the divergence of a mix, from mixes that were measured.

Near one mix the divergence is taken as a sum over the matrices,

    KL(mix) = rest + sum over matrices of sensitivity(matrix) * error(matrix, its kind)

with the relative squared errors of the kinds, which are known, and what rounded activations alone
make of it as the rest. The mixes that are measured move every matrix at once, up or down, in an
orthogonal design: each of them says something about all matrices, so that n mixes tell of each
matrix what n / 2 pairs that differ in it alone would, while all others vary.

Source: Plackett, Burman, "The design of optimum multifactorial experiments", Biometrika 33 (1946);
the strength of the ridge by leaving one out: Hastie, Tibshirani, Friedman, "The Elements of
Statistical Learning" (2009), 3.4 and 7.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.eval.mixes.candidates import Group

Floats = npt.NDArray[np.float64]

# A matrix moves to a kind with at least so many times more or less error: less is lost in the noise
# and more leaves the neighbourhood of the mix.
_STEP = 2.0
# Of divergences beside the middle's, at which a mix says 60 % of what the nearest one does.
_NEAR = 2.0
_FEWEST_MIXES = 16
_RIDGES = np.geomspace(1e-4, 10, 16)


def neighbours(
    groups: Sequence[Group], middle: Sequence[int], rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Mixes around one, a few more than there are groups, as indices of kinds, like the middle."""
    moves = [_moves(group, at) for group, at in zip(groups, middle, strict=True)]
    design = _orthogonal(max(_FEWEST_MIXES - 1, len(groups)))
    # Which columns, and which way round, is drawn: rounds around like mixes differ.
    columns = rng.permutation(design.shape[1])[: len(groups)]
    up = design[:, columns] ^ rng.integers(0, 2, len(groups))
    return [tuple(move[way] for move, way in zip(moves, row, strict=True)) for row in up.tolist()]


def _orthogonal(least: int) -> npt.NDArray[np.int64]:
    """0 or 1, int64[q + 1, q] of a prime q from `least` on: any two columns agree in half of the
    rows, and each column has as many 0 as 1 (Paley's construction).
    """
    q = max(3, least)
    while q % 4 != 3 or any(q % factor == 0 for factor in range(3, int(q**0.5) + 1, 2)):
        q += 1
    residues = np.zeros(q, np.int64)
    residues[np.arange(1, q) ** 2 % q] = 1
    places = (np.arange(q)[:, None] + np.arange(q)) % q
    return np.concatenate([residues[places], np.ones((1, q), np.int64)])


def _moves(group: Group, at: int) -> tuple[int, int]:
    """The next kinds with clearly more and clearly less error; where there is none, this one."""
    error = group.errors[at]
    below = [n for n in range(at) if group.errors[n] >= _STEP * error]
    above = [n for n in range(at + 1, len(group.kinds)) if group.errors[n] * _STEP <= error]
    return (below[-1] if below else max(0, at - 1)), (above[0] if above else at)


class Sensitivities(NamedTuple):
    """Sensitivities of a model's matrices, and the rest."""

    rest: float
    """In nats."""
    groups: Floats
    """float64[groups]: nats for a relative squared error of 1, all positive."""

    def costs(self, group: Group, number: int) -> Floats:
        """float64[kinds]: what each kind of the group of this number adds, in nats."""
        costs: Floats = self.groups[number] * np.array(group.errors)
        return costs


def unmeasured(groups: Sequence[Group]) -> Sensitivities:
    """Equal for all matrices, before anything is known."""
    return Sensitivities(0.0, np.ones(len(groups)))


def sensitivities(errors: Floats, divergences: Floats, near: float) -> Sensitivities:
    """By least squares over mixes.

    errors: float64[mixes, groups], relative squared errors of the kinds of each mix. divergences:
    float64[mixes]. near: the divergence for which the result is to be best.
    """
    scale = np.maximum(errors.mean(axis=0), 1e-30)
    count, width = errors.shape
    # Noise grows with the divergence; mixes of quite another one lie on another slope.
    weights = np.exp(-((np.log(divergences / near) / np.log(_NEAR)) ** 2) / 2) / divergences
    x = np.column_stack([errors / scale, np.ones(count)]) * weights[:, None]
    y = divergences * weights
    # Shares are drawn towards equal ones; the rest towards none.
    prior = np.append(np.full(width, float((y @ x[:, -1]) / (x[:, -1] @ x[:, -1])) / width), 0.0)
    left = y - x @ prior
    size = float((x**2).mean()) * count
    best: tuple[float, Floats, Floats] | None = None
    for ridge in _RIDGES:
        inverse = np.linalg.inv(x.T @ x + ridge * size * np.eye(width + 1))
        hat = np.einsum("ij,jk,ik->i", x, inverse, x)
        shares = inverse @ (x.T @ left)
        apart = (left - x @ shares) / np.maximum(1e-6, 1 - hat)
        score = float((apart**2).mean())
        if best is None or score < best[0]:
            spread = np.sqrt(score * np.diag(inverse @ (x.T @ x) @ inverse))
            best = score, prior + shares, spread
    assert best is not None
    _, shares, spread = best
    rest = max(0.0, float(shares[-1]))
    # A share is never taken as less than what the noise would hide.
    least = np.maximum(spread[:-1], 1e-9 * near)
    return Sensitivities(rest, np.maximum(shares[:-1], least) / scale)
