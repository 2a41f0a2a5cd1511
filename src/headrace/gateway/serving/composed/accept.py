"""Whether a stage's answer is good enough to be sent."""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import RequestError
from headrace.gateway.routing.complexity.choice import Classifier
from headrace.gateway.routing.complexity.view import view_of
from headrace.gateway.serving.composed.answer_rules import objection
from headrace.gateway.serving.composed.inside import Answered, Inside
from headrace.gateway.serving.composed.judge import points_of, probability_of
from headrace.gateway.serving.composed.logprobs import sureness
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.gateway.settings.cascade import AcceptSettings, WhenUnknown
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import DamagedReplyError

# A question of the gateway's to a model, and all that may come in place of its answer.
NO_ANSWER = (AllTargetsFailedError, RequestError, DamagedReplyError, TimeoutError)


class Verdict(NamedTuple):
    """The decision on a stage's answer."""

    accepted: bool
    said: str
    """The reason, in a few words for a header."""


async def verdict_of(
    answered: Answered,
    call: ChatCall,
    inside: Inside,
    settings: AcceptSettings,
    classifier: Classifier | None,
) -> Verdict:
    """The verdict of the rules, which cost nothing; then that of `by`."""
    against = objection(answered.reply, call, settings.rules)
    if against is not None:
        return Verdict(False, against)
    least = settings.least
    if settings.by == "rules":
        return Verdict(True, "rules hold")
    if settings.by == "logprobs":
        sure = sureness(answered.reply, settings.logprobs)
        return _weighed("logprobs", sure, least, settings.logprobs.when_unknown)
    if settings.by == "classifier":
        assert classifier is not None
        simple = 1.0 - classifier.probability(view_of(call))
        return _weighed("simple", simple, least, "escalate")
    ask = points_of if settings.by == "judge" else probability_of
    try:
        found = await ask(answered, call, inside, settings.judge)
    except NO_ANSWER:
        found = None
    return _weighed(settings.by, found, least, settings.judge.on_error)


def _weighed(name: str, found: float | None, least: float, unknown: WhenUnknown) -> Verdict:
    if found is None:
        return Verdict(unknown == "accept", f"{name} unknown")
    return Verdict(
        found >= least, f"{name} {found:.3g} {'>=' if found >= least else '<'} {least:g}"
    )
