"""Why a comparison of runs may mislead, in sentences.

What differs between the runs beside what is to be compared: the load, the prompts, the client's
machine, how the answers came out. A comparison of servers wants all of that equal. Nothing is said
of what cannot be known: a key that no run has is no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from headrace.bench.record import RunRecord
from headrace.bench.summary import Spread, Summary
from headrace.page.figures import DASH, figure, share

_TOKENS_DIFFER = 0.05
"""Of mean lengths: beyond it times of whole answers are times of different work."""

_FAILED_DIFFER = 0.01

_WHOLE = frozenset({None, "complete", "duration"})
"""Endings of runs that ran to their planned end."""


_ENDINGS: Mapping[object, str] = MappingProxyType(
    {
        "partial": "The client of {} did not finish: only requests ended by then are included.",
        "saturated": "{} was ended because the server did not keep up with the rate.",
        "refused": "{} was ended because the server refused every request.",
        "max_errors": "{} was ended because too many requests had failed.",
        "interrupted": "{} was interrupted.",
    }
)
_ANY_ENDING = "{} did not finish."


class Caveat(msgspec.Struct, frozen=True):
    """A difference between runs that a reader of their comparison has to know."""

    text: str
    misleads: bool
    """Ratios may say something else than they seem to; otherwise it is good to know."""


_MISLEADING = (
    ("load", "The loads differ ({}): ratios show the load as well as the server."),
    ("prompts", "The prompts differ ({}): latencies are of different work."),
    ("endpoint_kind", "The APIs differ ({}): templates and chunks are not the same."),
    ("tokenizer", "Prompts were made with different tokenizers ({}): their lengths differ."),
    ("client_cpu", "The client's machines differ ({}): its share of each latency does, too."),
    ("client_cpus", "The client's machines have different numbers of processors ({})."),
    ("client_memory_bytes", "The client's machines have different memory, in bytes ({})."),
)

_NOTEWORTHY = (
    ("client_processes", "The numbers of client processes differ ({})."),
    ("version", "Different versions of headrace measured ({})."),
)

_SUBJECTS = ("endpoint", "model")


def caveats(
    names: Sequence[str], runs: Sequence[RunRecord], summaries: Sequence[Summary], under: str
) -> tuple[Caveat, ...]:
    """In order of importance within each kind. under: definitions that all are shown under."""
    found = [*_client_bound(names, summaries), *_unfinished(names, runs)]
    found += [
        Caveat(text.format(_values(names, runs, key)), misleads=True)
        for key, text in _MISLEADING
        if _differs(runs, key)
    ]
    if _differs(runs, "prompts_fingerprint") and not _differs(runs, "prompts"):
        seeds = f" (seeds: {_values(names, runs, 'seed')})" if _differs(runs, "seed") else ""
        found.append(
            Caveat(
                f"Prompts or lengths differ, though they are of the same kind{seeds}.",
                misleads=False,
            )
        )
    found += _lengths(names, summaries)
    found += _failures(names, summaries)
    found += [
        Caveat(text.format(_values(names, runs, key)), misleads=False)
        for key, text in _NOTEWORTHY
        if _differs(runs, key)
    ]
    found += _subjects(names, runs, misled=any(one.misleads for one in found))
    reported = [run.about.get("definitions") or under for run in runs]
    if any(one != under for one in reported):
        was = ", ".join(f"{name}: {one}" for name, one in zip(names, reported, strict=True))
        found.append(
            Caveat(
                f"The runs were reported under other definitions ({was}); here all are by {under}.",
                misleads=False,
            )
        )
    return tuple(sorted(found, key=lambda one: not one.misleads))


def _differs(runs: Sequence[RunRecord], key: str) -> bool:
    values = [run.about.get(key) for run in runs]
    return any(value != values[0] for value in values)


def _values(names: Sequence[str], runs: Sequence[RunRecord], key: str) -> str:
    values = [run.about.get(key) for run in runs]
    said = (DASH if value is None else str(value) for value in values)
    return "; ".join(f"{name}: {value}" for name, value in zip(names, said, strict=True))


def _client_bound(names: Sequence[str], summaries: Sequence[Summary]) -> list[Caveat]:
    return [
        Caveat(
            f"In {name} the client was the limit: its figures describe the client, not the server.",
            misleads=True,
        )
        for name, summary in zip(names, summaries, strict=True)
        if summary.client.client_bound
    ]


def _unfinished(names: Sequence[str], runs: Sequence[RunRecord]) -> list[Caveat]:
    return [
        Caveat(_ENDINGS.get(run.about["ending"], _ANY_ENDING).format(name), misleads=True)
        for name, run in zip(names, runs, strict=True)
        if run.about.get("ending") not in _WHOLE
    ]


def _lengths(names: Sequence[str], summaries: Sequence[Summary]) -> list[Caveat]:
    found = []
    for what, advice, of in (
        (
            "Answers",
            "compare TPOT and tokens/s, not E2E or requests/s",
            [one.output_tokens for one in summaries],
        ),
        ("Prompts", "TTFT is of different work", [one.prompt_tokens for one in summaries]),
    ):
        means = [None if one is None else _mean(one) for one in of]
        known = [one for one in means if one]
        if known and max(known) > (1 + _TOKENS_DIFFER) * min(known):
            told = ", ".join(
                f"{name}: {figure(mean)}" for name, mean in zip(names, means, strict=True)
            )
            found.append(
                Caveat(f"{what} differ in length (mean tokens, {told}): {advice}.", misleads=True)
            )
    return found


def _mean(of: Spread) -> float:
    return of.distribution.mean


def _failures(names: Sequence[str], summaries: Sequence[Summary]) -> list[Caveat]:
    parts = [
        one.requests.failed / one.requests.measured if one.requests.measured else 0.0
        for one in summaries
    ]
    if max(parts) - min(parts) < _FAILED_DIFFER:
        return []
    told = ", ".join(f"{name}: {share(part)}" for name, part in zip(names, parts, strict=True))
    return [
        Caveat(
            f"Different shares of requests failed ({told}); latencies do not include failed "
            "requests.",
            misleads=True,
        )
    ]


def _subjects(names: Sequence[str], runs: Sequence[RunRecord], *, misled: bool) -> list[Caveat]:
    differing = [key for key in _SUBJECTS if _differs(runs, key)]
    if not differing:
        return []
    text = " and ".join(f"{key}s differ ({_values(names, runs, key)})" for key in differing)
    text = text[0].upper() + text[1:]
    if misled or len(differing) > 1:
        text += "; with more than one difference a ratio does not show which of them caused it"
    return [Caveat(text + ".", misleads=False)]
