"""Step times as clients of a server saw them: from results of `headrace bench load`.

While a request streams, every step gives it one token. So from its first token to its last the
steps are its own tokens, and what they did beside is known from the other streams: each token that
came meanwhile was a decode, each first token the end of a prompt. The seconds are those on the
wall, with what lies between steps and what the server's own work takes from the engine's threads.

Of TTFT = a·tokens + b + queue, b is told by requests that were alone until their first token: those
waited for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError
from headrace.plan.calibration.errors import Spread, spread
from headrace.plan.calibration.latency_fit import TOLERANCE, StepTerms, latency_model
from headrace.plan.calibration.nnls import nnls, robust_nnls
from headrace.plan.run_file import Request, Run
from headrace.plan.step.latency_model import LatencyModel
from headrace.telemetry.readings import growth

FEWEST_ALONE = 5
FEWEST_STREAMS = 20
# Requests in a step, most over least, from which on their time can be told from the step's own.
_BATCHES_APART = 2.0
# A step of the server that `headrace serve` starts without flags.
STEP_TOKENS = 2048
_TURNS = 10

Array = npt.NDArray[np.float64]


class Stretch(NamedTuple):
    """The time from a request's first token to its last: the work of the steps, and the seconds."""

    terms: StepTerms
    seconds: float


class Alone(NamedTuple):
    """A request that nobody else was in flight with until its first token came; seconds from the
    intended send. terms: of the steps that read its prompt.
    """

    terms: StepTerms
    ttft_s: float


class ServerSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Step figures from the server's /metrics, beside the predictions of the engine's line."""

    steps: int
    step_s: float
    """All its steps, and line_s: what the line says of those."""
    line_s: float
    queue_s: float
    prefill_s: float
    """With `queue_s`: mean of a request. Time that a request waits for the step in work is not in
    queue_s."""

    @property
    def error(self) -> float:
        """line / server − 1."""
        return self.line_s / self.step_s - 1


class ServedFit(msgspec.Struct, frozen=True, kw_only=True):
    """A latency model fitted to runs of a server."""

    latency: LatencyModel
    """What plans take, its request_s of `alone` requests."""
    fitted: bool
    """Whether the steps, too, are of the streams; else they are the engine's and their loads were
    too alike."""
    runs: int
    requests: int
    alone: int
    measured_at: str
    """Time of the newest run."""
    errors: Spread | None
    """Errors of the line on streams."""
    engine_errors: Spread | None = None
    """The same of the line of the engine alone."""
    server: ServerSteps | None = None


def fit_served(
    runs: Sequence[Run], engine: LatencyModel | None = None, *, step_tokens: int = STEP_TOKENS
) -> ServedFit:
    """runs: of one server, read with their chunks. engine: the line of the engine alone.

    Raises ConfigError where nothing was streamed, no request was alone, or, without `engine`, all
    loads were alike.
    """
    stretches = [one for run in runs for one in stretches_of(run)]
    alone = [one for run in runs for one in alone_of(run, step_tokens)]
    where = ", ".join(run.where for run in runs)
    if len(alone) < FEWEST_ALONE:
        raise ConfigError(
            f"{where}: {len(alone)} requests were alone until their first token, "
            f"{FEWEST_ALONE} are needed to measure the time outside of steps: add a run of "
            "`headrace bench load --concurrency 1 --requests 30 --save FOLDER`"
        )
    fitted = _loads_differ(stretches)
    if not fitted and engine is None:
        raise ConfigError(
            f"{where}: batches were all alike, or fewer than {FEWEST_STREAMS} requests streamed: "
            "add runs of one user and of several, such as --concurrency 1 and --concurrency 8"
        )
    days = sorted(str(run.about.get("started", ""))[:19] for run in runs)
    count = sum(len(run.completed) for run in runs)
    said = f"headrace bench load, {count:,} requests, {days[-1][:10]}"
    if fitted:
        latency = _fit(stretches, alone, said)
    else:
        assert engine is not None
        latency = _beside(engine, alone, said)
    return ServedFit(
        latency=latency,
        fitted=fitted,
        runs=len(runs),
        requests=count,
        alone=len(alone),
        measured_at=days[-1],
        errors=_errors(latency, stretches),
        engine_errors=None if engine is None else _errors(engine, stretches),
        server=None if engine is None else server_steps(runs, engine),
    )


def stretches_of(run: Run) -> list[Stretch]:
    """Of every request that streamed two chunks or more, warm-up too: all of them were served."""
    streams = [one for one in run.requests if _streamed(one)]
    if not streams:
        return []
    firsts = _Sums(
        (stream.content_s[0], (prompt, _read_pairs(stream)))
        for stream in streams
        if (prompt := _read(stream))
    )
    tokens = _Sums(_tokens(streams))
    found = []
    for one in streams:
        begin, end = one.content_s[0], one.content_s[-1]
        assert one.output_tokens is not None
        if end <= begin:
            continue
        prompts, pairs = firsts.between(begin, end)
        decodes, context = tokens.between(begin, end)
        terms = StepTerms(one.output_tokens - 1, prompts, pairs, decodes, context)
        found.append(Stretch(terms, end - begin))
    return found


def alone_of(run: Run, step_tokens: int = STEP_TOKENS) -> list[Alone]:
    """Of requests that had tokens of their prompts to read."""
    there = sorted(
        (one for one in run.requests if one.sent_s is not None), key=lambda one: one.sent_s or 0.0
    )
    found = []
    busy_until_s = -np.inf
    for at, one in enumerate(there):
        assert one.sent_s is not None
        free = one.sent_s >= busy_until_s
        end_s = one.end_s if one.end_s is not None else np.inf
        busy_until_s = max(busy_until_s, end_s)
        prompt = _read(one)
        if not free or not one.content_s or one.failure or not prompt:
            continue
        following = there[at + 1].sent_s if at + 1 < len(there) else None
        if following is not None and following < one.content_s[0]:
            continue
        steps = -(-prompt // step_tokens)
        terms = StepTerms(steps, prompt, _read_pairs(one), 0.0, 0.0)
        found.append(Alone(terms, one.content_s[0] - one.intended_s))
    return found


def server_steps(runs: Iterable[Run], line: LatencyModel) -> ServerSteps | None:
    """None where no run has readings of a headrace server's /metrics."""
    totals = np.zeros(6)
    terms = np.zeros(len(StepTerms._fields))
    for run in runs:
        told = [
            growth(run.readings, name)
            for name in ("steps", "stepped", "queued", "prefilled", "begun", "prompt")
        ]
        output = growth(run.readings, "output")
        known = [one for one in run.completed if one.prompt_tokens and one.output_tokens]
        if not known or output is None or any(one is None for one in told):
            continue
        totals += np.array(told, dtype=float)
        steps, _, _, _, begun, prompts = (float(one or 0) for one in told)
        read = prompts - (growth(run.readings, "hits") or 0.0)
        decodes = output - begun
        # The metrics count tokens; what these attended to is as the client's own requests are.
        pairs = sum(map(_read_pairs, known)) / max(1, sum(map(_read, known)))
        context = np.average(
            [(one.prompt_tokens or 0) + (one.output_tokens or 0) / 2 for one in known],
            weights=[one.output_tokens or 0 for one in known],
        )
        terms += np.array([steps, read, read * pairs, decodes, decodes * float(context)])
    steps, step_s, queued, prefilled, begun, _ = (float(one) for one in totals)
    if not (step_s > 0 and begun > 0):
        return None
    return ServerSteps(
        steps=round(steps),
        step_s=step_s,
        line_s=float(terms @ _coefficients(line)),
        queue_s=queued / begun,
        prefill_s=prefilled / begun,
    )


class _Sums:
    """Pairs of amounts at moments, summed between any two."""

    def __init__(self, moments: Iterable[tuple[float, tuple[float, float]]]) -> None:
        rows = sorted(moments)
        self._at = np.array([at for at, _ in rows])
        amounts = np.array([amount for _, amount in rows], dtype=float).reshape(-1, 2)
        self._sums = np.vstack([np.zeros(2), np.cumsum(amounts, axis=0)])

    def between(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """After begin_s, and up to end_s."""
        low, high = np.searchsorted(self._at, [begin_s, end_s], side="right")
        first, second = self._sums[high] - self._sums[low]
        return float(first), float(second)


def _tokens(streams: Iterable[Request]) -> Iterable[tuple[float, tuple[float, float]]]:
    """Each chunk after a first: decodes, and their context. A chunk may hold several tokens, or a
    part of one, so the tokens of a request are spread over its chunks."""
    for one in streams:
        rest = one.content_s[1:]
        assert one.output_tokens is not None
        each = (one.output_tokens - 1) / len(rest)
        for number, at in enumerate(rest, 1):
            yield at, (each, each * ((one.prompt_tokens or 0) + each * number))


def _streamed(one: Request) -> bool:
    many = one.output_tokens is not None and one.output_tokens > 1
    return many and len(one.content_s) > 1 and not one.failure


def _read(one: Request) -> int:
    """Tokens of the prompt that were not cached."""
    return max(0, (one.prompt_tokens or 0) - (one.cached_tokens or 0))


def _read_pairs(one: Request) -> float:
    """Pairs of a token that was read and one up to it, those in the cache among the latter."""
    prompt = one.prompt_tokens or 0
    return _pairs(prompt) - _pairs(prompt - _read(one))


def _pairs(tokens: int) -> float:
    return tokens * (tokens + 1) / 2


def _loads_differ(stretches: Sequence[Stretch]) -> bool:
    if len(stretches) < FEWEST_STREAMS:
        return False
    batches = [one.terms.decode_requests / one.terms.steps for one in stretches]
    low, high = np.percentile(batches, (5, 95))
    return bool(high >= _BATCHES_APART * low)


def _fit(stretches: Sequence[Stretch], alone: Sequence[Alone], said: str) -> LatencyModel:
    """All coefficients together: what the others read in a stretch and a prompt that is read alone
    take the same time a token."""
    rows = [(*one.terms, 0.0) for one in stretches]
    # As much weight for first tokens as for streams, of which a loaded run has more.
    times = max(1, round(len(stretches) / len(alone)))
    rows += [(*one.terms, 1.0) for one in alone] * times
    seconds = [one.seconds for one in stretches] + [one.ttft_s for one in alone] * times
    matrix, target = np.array(rows), np.array(seconds)
    found = robust_nnls(matrix, target, tolerance=TOLERANCE)
    # Errors as shares of what is predicted: as shares of what was measured the quick ones weigh
    # most, and a line through them is below the mean, which is what queues are made of.
    for _ in range(_TURNS):
        predicted = matrix @ found
        found = nnls(matrix / predicted[:, None], target / predicted)
    *steps, request_s = found
    return latency_model(
        [float(one) for one in steps], source=f"streams of {said}", request_s=float(request_s)
    )


def _beside(engine: LatencyModel, alone: Sequence[Alone], said: str) -> LatencyModel:
    """The engine's steps, and what first tokens took longer."""
    steps = _coefficients(engine)
    rest = [one.ttft_s - float(np.array(one.terms) @ steps) for one in alone]
    return replace(
        engine,
        request_s=max(0.0, float(np.median(rest))),
        source=f"{engine.source}; outside of steps from {said}",
    )


def _errors(line: LatencyModel, stretches: Sequence[Stretch]) -> Spread | None:
    steps = _coefficients(line)
    return spread(float(np.array(one.terms) @ steps) / one.seconds - 1 for one in stretches)


def _coefficients(line: LatencyModel) -> Array:
    return np.array([
        line.step_s, line.prefill_token_s, line.prefill_pair_s, line.decode_request_s,
        line.decode_context_token_s,
    ])  # fmt: skip
