"""The tables of the matrix, before anybody decides how they look.

Below a median stand its quartiles. A median is marked as the best only where the interval in which
the true one lies, with 95 % confidence, is apart from everybody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.bench.providers.costs import ProviderCost
from headrace.bench.providers.figures import Matrix, ProviderFigures, Quartiles
from headrace.bench.providers.sequential import Sequential
from headrace.page.figures import DASH, count, duration, figure, share
from headrace.page.sheet import Cell, Sheet

Get = Callable[[ProviderFigures], Quartiles | None]


def sheets(of: Matrix) -> list[Sheet]:
    """Side by side, what it costs, sequential against parallel, what failed."""
    made = [side_by_side(of), costs(of)]
    return [*made, *[one for one in (sequential(of), failures(of)) if one.rows]]


def side_by_side(of: Matrix) -> Sheet:
    """The matrix itself."""
    best_ttft = best(of.providers, lambda one: one.ttft_ms, least=True)
    best_tps = best(of.providers, lambda one: one.tps)
    best_batch = best(of.providers, lambda one: one.tps_batch)
    best_e2e = best(of.providers, lambda one: one.e2e_ms, least=True)
    rows = tuple(
        (
            Cell(one.label, about(one)),
            timed(one.ttft_ms, is_best=one is best_ttft),
            rated(one.tps, is_best=one is best_tps),
            rated(one.tps_batch, is_best=one is best_batch),
            shared(one.batching_efficiency),
            timed(one.e2e_ms, is_best=one is best_e2e),
            Cell(
                share(one.failed / one.requests) if one.requests else DASH,
                f"{count(one.failed)} of {count(one.requests)}",
                False if one.failed else None,
            ),
            Cell(f"{count(one.answered)} of {count(one.visits)}"),
        )
        for one in of.providers
    )
    columns = ("provider", "TTFT", "TPS", batch_title(of), "efficiency", "E2E", "failed", "up")
    return Sheet("Providers", columns, rows, tuple(remarks(of)))


def batch_title(of: Matrix) -> str:
    """With the number, where it is everybody's."""
    sizes = {one.batch_size for one in of.providers}
    return f"TPS of {sizes.pop()}" if len(sizes) == 1 else "TPS of the batch"


def about(one: ProviderFigures) -> str:
    """What stands below a name."""
    return " · ".join(filter(None, (one.model, one.region)))


def timed(of: Quartiles | None, *, is_best: bool = False) -> Cell:
    """A median of milliseconds."""
    if of is None:
        return Cell(DASH)
    quartiles = "" if of.count == 1 else _between(duration(of.q1), duration(of.q3))
    return Cell(duration(of.p50), quartiles, True if is_best else None)


def rated(of: Quartiles | None, *, is_best: bool = False) -> Cell:
    """A median of tokens a second."""
    if of is None:
        return Cell(DASH)
    quartiles = "" if of.count == 1 else f"{figure(of.q1)}–{figure(of.q3)}"
    return Cell(figure(of.p50), quartiles, True if is_best else None)


def shared(of: Quartiles | None) -> Cell:
    """A median share."""
    if of is None:
        return Cell(DASH)
    return Cell(share(of.p50), "" if of.count == 1 else _between(share(of.q1), share(of.q3)))


def _between(low: str, high: str) -> str:
    """The unit once, where both have the same."""
    number, _, unit = low.partition(" ")
    return f"{number}–{high}" if unit and high.endswith(f" {unit}") else f"{low}–{high}"


def best(of: Sequence[ProviderFigures], get: Get, *, least: bool = False) -> ProviderFigures | None:
    """Whose median is better than everybody else's beyond doubt; None where there is doubt."""
    known = [(one, spread) for one in of if (spread := get(one)) is not None]
    if len(known) < 2:
        return None
    sign = -1 if least else 1
    (first, ahead), *others = sorted(known, key=lambda pair: -sign * pair[1].p50)
    worst = ahead.p50_interval.high if least else ahead.p50_interval.low
    for _, other in others:
        nearest = other.p50_interval.low if least else other.p50_interval.high
        if worst is None or nearest is None or sign * worst <= sign * nearest:
            return None
    return first


def remarks(of: Matrix) -> list[str]:
    """What a reader has to know to believe the figures."""
    notes = [
        "Medians, with quartiles below. TTFT, TPS (after the first token) and E2E are of "
        "requests sent alone; TPS of a batch is all its tokens divided by the time it took; "
        "efficiency is that divided by the rate alone times the number of requests. up: "
        "rounds in which any request succeeded."
    ]
    if any(one.ttft_ms is not None and one.ttft_ms.count > 1 for one in of.providers):
        notes.append("Green: the best with 95 % confidence; this takes at least six rounds.")
    names = {
        "the output was counted here, because the server did not report it": "client_counted",
        "answers were shorter than requested; TPS and E2E of short answers differ from those "
        "of long ones": ("short"),
        "rounds in which this client was the limit: its figures are too low": "client_bound",
    }
    for words, field in names.items():
        told = [f"{one.label} {getattr(one, field)}" for one in of.providers if getattr(one, field)]
        if told:
            notes.append(f"{', '.join(told)}: {words}.")
    cached = [f"{one.label} {share(one.cached_share)}" for one in of.providers if one.cached_share]
    if cached:
        notes.append(
            f"Share of prompts found in a cache, as the servers report: {', '.join(cached)}."
        )
    if of.missed:
        notes.append(f"{count(of.missed)} rounds of the schedule were missed.")
    notes += [f"{one.label} is paused: {one.paused}" for one in of.providers if one.paused]
    notes += [f"Another series, {change}." for change in of.changes]
    return notes


def costs(of: Matrix) -> Sheet:
    """Prices as the file has them, and what they come to here."""
    rows = tuple(
        (
            Cell(one.label, one.notes),
            *[Cell(usd(value)) for value in _prices(one.cost)],
            Cell(usd(one.cost.per_million)),
            Cell(usd(one.cost.per_1000_requests)),
            Cell(figure(one.cost.tps_per_usd_per_million)),
        )
        for one in of.providers
        if any(value is not None for value in _prices(one.cost))
    )
    columns = ("provider", "$/M in", "$/M out", "$/M cached", "$/hour")
    measured = ("$/M, measured", "$/1000 requests", "TPS per $/M")
    notes = (
        "Measured: the price of all tokens billed here, in their proportions; for a machine "
        "paid by the hour, the price of output at the batch's rate, as if it were always "
        "that busy.",
    )
    return Sheet("Cost", (*columns, *measured), rows, notes if rows else ())


def _prices(of: ProviderCost) -> tuple[float | None, ...]:
    return (of.input_usd, of.output_usd, of.cached_usd, of.usd_per_hour)


def usd(value: float | None) -> str:
    """A price."""
    return DASH if value is None else f"${figure(value)}"


def sequential(of: Matrix) -> Sheet:
    """One after another against all at once; a row for each provider that did both."""
    rows = tuple(
        _sequential_row(one.label, one.sequential)
        for one in of.providers
        if one.sequential is not None
    )
    columns = ("provider", "requests", "time", "faster", "TPS", "E2E", "TTFT")
    notes = (
        "One after another → all at once; medians over rounds in which every request of both "
        "was answered. Sending more at once pays as long as TPS rises more than E2E.",
    )
    return Sheet("Sequential against parallel", columns, rows, notes)


def _sequential_row(label: str, of: Sequential) -> tuple[Cell, ...]:
    def both(before: str, after: str) -> Cell:
        return Cell(f"{before} → {after}")

    return (
        Cell(label),
        Cell(count(of.requests), f"{count(of.visits)} rounds"),
        both(duration(of.single_wall_s * 1000), duration(of.batch_wall_s * 1000)),
        Cell(f"{figure(of.speedup)}×"),
        both(figure(of.single_tps), figure(of.batch_tps)),
        both(duration(of.single_e2e_ms), duration(of.batch_e2e_ms)),
        both(_ms(of.single_ttft_ms), _ms(of.batch_ttft_ms)),
    )


def _ms(value: float | None) -> str:
    return DASH if value is None else duration(value)


def failures(of: Matrix) -> Sheet:
    """What failed requests said, the most frequent of each provider."""
    rows = tuple(
        (Cell(one.label), Cell(said.error), Cell(said.message), Cell(count(said.requests)))
        for one in of.providers
        for said in one.messages
    )
    left = sum(one.failed - sum(said.requests for said in one.messages) for one in of.providers)
    notes = (f"{count(left)} more requests failed with other messages.",) if left else ()
    return Sheet("Errors", ("provider", "class", "message", "requests"), rows, notes, 3)
