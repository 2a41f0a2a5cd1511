"""The cost and the duration to expect of a composed model, path by path.

Costs are prices times expected tokens. Durations and shares of accepted answers come from the
ledger, or from the configuration where the ledger has none. Each figure says where it is from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from headrace.gateway.ledger.stages import Stages
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.strategies import LIKELY_OUTPUT_TOKENS, expected_nusd
from headrace.gateway.serving.composed.inside import OWN_TOKENS
from headrace.gateway.settings.cascade import AcceptSettings, StageSettings
from headrace.gateway.settings.complexity import ChooseSettings
from headrace.gateway.settings.model import ModelSettings

# Fewer answers than this say little about a share.
LEAST_ASKED = 20
_ASSUMED_SHARE = 0.5
From = Literal["measured", "stated", "assumed"]


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """One way through a composed model."""

    answered_by: str
    asks: tuple[str, ...]
    """Names of the models that are called, in order."""
    share: float
    """How often requests take this path."""
    share_from: From
    """Where `share` comes from."""
    cost_nusd: float | None
    """None if a price on the path is unknown."""
    lasts_s: float | None
    """None if a duration on the path is unknown."""


class CompositeEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected cost and duration of a request; `baseline` is one model alone, to compare."""

    input_tokens: int
    output_tokens: int
    paths: tuple[Path, ...]
    cost_nusd: float | None
    lasts_s: float | None
    baseline: str
    baseline_nusd: float | None
    notes: tuple[str, ...]


class _Step(NamedTuple):
    name: str
    cost_nusd: float | None
    lasts_s: float | None

    def then(self, other: _Step) -> _Step:
        return _Step("", _sum(self.cost_nusd, other.cost_nusd), _sum(self.lasts_s, other.lasts_s))


_NO_STEP = _Step("", 0.0, 0.0)


class Estimator:
    """An estimator of what to expect of composed models for one request.

    `lasted_s` gives the median duration of a target's answers in the ledger, None if it has none.
    `seen` holds the results of stages so far, None without a ledger.
    """

    def __init__(
        self,
        router: Router,
        ask: RoutingQuery,
        lasted_s: Callable[[tuple[str, ...]], float | None],
        seen: Stages | None,
    ) -> None:
        self._router = router
        self._ask = ask
        self._output = ask.most_output_tokens or LIKELY_OUTPUT_TOKENS
        self._lasted_s = lasted_s
        self._seen = {} if seen is None else {stage.model: stage for stage in seen.stages}
        self._answered = 0 if seen is None else seen.answered
        self._notes: list[str] = []

    def of(self, model: ModelSettings) -> CompositeEstimate:
        """The expectation for a composed model."""
        if model.choose is not None:
            paths = self._of_choose(model.choose)
        elif model.cascade is not None:
            *first, last = model.cascade.stages
            paths = self._of_stages(tuple(first), last, model.cascade.accept, beside=False)
        else:
            pipeline = model.pipeline
            assert pipeline is not None
            beside = pipeline.speculative
            paths = self._of_stages((pipeline.draft,), pipeline.final, pipeline.decide, beside)
        composed = model.choose or model.cascade or model.pipeline
        assert composed is not None
        baseline = composed.models[-1] if model.choose is not None else composed.models[0]
        return CompositeEstimate(
            input_tokens=self._ask.input_tokens,
            output_tokens=self._output,
            paths=paths,
            cost_nusd=_mean([(path.share, path.cost_nusd) for path in paths]),
            lasts_s=_mean([(path.share, path.lasts_s) for path in paths]),
            baseline=baseline,
            baseline_nusd=self._step(baseline, is_timed=False).cost_nusd,
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _of_choose(self, choose: ChooseSettings) -> tuple[Path, ...]:
        before = _NO_STEP
        if choose.model is not None:
            tokens = OWN_TOKENS + self._ask.input_tokens
            before = self._step(
                choose.model.ask, tokens, choose.model.max_tokens, choose.model.expected_s
            )
        served = {name: stage.told for name, stage in self._seen.items()}
        total = sum(served.get(name, 0) for name in choose.models)
        measured = total >= LEAST_ASKED
        if not measured:
            self._notes.append("shares are assumed equal: the ledger has too few requests")
        paths = []
        for name in choose.models:
            step = before.then(self._step(name))
            share = served.get(name, 0) / total if measured else 1 / len(choose.models)
            paths.append(
                Path(
                    answered_by=name,
                    asks=(*((before.name,) if before.name else ()), name),
                    share=share,
                    share_from="measured" if measured else "assumed",
                    cost_nusd=step.cost_nusd,
                    lasts_s=step.lasts_s,
                )
            )
        return tuple(paths)

    def _of_stages(
        self,
        stages: tuple[StageSettings, ...],
        last: StageSettings,
        accept: AcceptSettings,
        beside: bool,
    ) -> tuple[Path, ...]:
        paths: list[Path] = []
        left, so_far, asks = 1.0, _NO_STEP, list[str]()
        final = self._step(last.model, stated_s=last.expected_s)
        for stage in stages:
            so_far = so_far.then(self._step(stage.model, stated_s=stage.expected_s))
            asks.append(stage.model)
            if accept.by in ("judge", "verifier"):
                judge = accept.judge.model or stage.model
                tokens = self._ask.input_tokens + self._output + OWN_TOKENS
                so_far = so_far.then(
                    self._step(judge, tokens, accept.judge.max_tokens, accept.judge.expected_s)
                )
                asks.append(judge)
            share, share_from = self._share(stage)
            accepted = so_far
            if beside:  # by then the final model has read its prompt and written a little
                cut = self._step(last.model, output_tokens=0, is_timed=False).cost_nusd
                accepted = accepted._replace(cost_nusd=_sum(so_far.cost_nusd, cut))
            paths.append(self._path(stage.model, asks, left * share, share_from, accepted))
            left *= 1 - share
        both = so_far.then(final)
        if beside and so_far.lasts_s is not None and final.lasts_s is not None:
            both = both._replace(lasts_s=max(so_far.lasts_s, final.lasts_s))
        share_from = paths[-1].share_from
        paths.append(self._path(last.model, [*asks, last.model], left, share_from, both))
        return tuple(paths)

    def _path(
        self, model: str, asks: list[str], share: float, share_from: From, step: _Step
    ) -> Path:
        return Path(
            answered_by=model,
            asks=tuple(asks),
            share=share,
            share_from=share_from,
            cost_nusd=step.cost_nusd,
            lasts_s=step.lasts_s,
        )

    def _share(self, stage: StageSettings) -> tuple[float, From]:
        seen = self._seen.get(stage.model)
        if seen is not None and seen.asked >= LEAST_ASKED and seen.share is not None:
            return seen.share, "measured"
        if stage.acceptance_rate is not None:
            return stage.acceptance_rate, "stated"
        self._notes.append(
            f"half of {stage.model}'s answers are assumed to be accepted: fewer than "
            f"{LEAST_ASKED} are in the ledger and the configuration states no `acceptance_rate`"
        )
        return _ASSUMED_SHARE, "assumed"

    def _step(
        self,
        name: str,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        stated_s: float | None = None,
        *,
        is_timed: bool = True,
    ) -> _Step:
        """One call of a model, at the target that is tried first."""
        output = self._output if output_tokens is None else output_tokens
        asked = self._ask._replace(
            wanted=msgspec.structs.replace(self._ask.wanted, models=(name,)),
            input_tokens=self._ask.input_tokens if input_tokens is None else input_tokens,
            most_output_tokens=max(1, output),
            least=self._ask.least if input_tokens is None else None,
        )
        candidates = self._router.decide(asked, 0.0).candidates
        if not candidates:
            self._notes.append(f"{name}: no target can serve it")
            return _Step(name, None, None)
        price = expected_nusd(candidates[0].target, asked)
        if price is None:
            self._notes.append(f"the price of {candidates[0].target.name} is unknown")
        cost = None if price is None else float(price)
        if not is_timed:
            return _Step(name, cost, None)
        lasts_s = self._lasted_s(tuple(candidate.target.name for candidate in candidates))
        if lasts_s is None:
            lasts_s = stated_s
            assumed = "using expected_s" if stated_s is not None else "`expected_s` is not set"
            self._notes.append(f"the ledger has no answers of {name}: {assumed}")
        return _Step(name, cost, lasts_s)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _mean(each: list[tuple[float, float | None]]) -> float | None:
    known = [share * value for share, value in each if value is not None]
    return sum(known) if len(known) == len(each) else None
