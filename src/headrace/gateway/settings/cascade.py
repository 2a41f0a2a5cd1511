"""Models that are tried one after another until an answer is good enough."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.gateway.settings.complexity import Probability
from headrace.gateway.settings.provider import Text
from headrace.gateway.settings.reliability import Seconds

AcceptBy = Literal["rules", "logprobs", "judge", "verifier", "classifier"]
Measure = Literal["mean", "window", "margin"]
WhenUnknown = Literal["escalate", "accept"]


class AnswerRuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that reject an answer whatever its score. They cost nothing and are checked first."""

    refusals: Annotated[
        bool, Meta(description="Reject answers that begin like a refusal (`I cannot help with`).")
    ] = True
    refusal_phrases: Annotated[
        tuple[Text, ...], Meta(description="Further beginnings of refusals; case is ignored.")
    ] = ()
    min_chars: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="Reject texts shorter than this."),
        formerly("least_chars"),
    ] = 1
    json: Annotated[
        bool,
        Meta(
            description="Reject an answer that is not JSON, or does not match the schema, where "
            "JSON was "
            "requested."
        ),
    ] = True
    tool_arguments: Annotated[
        bool,
        Meta(
            description="Reject calls of tools that do not exist, or that do not match their "
            "schema."
        ),
    ] = True
    length: Annotated[bool, Meta(description="Reject answers cut off by the token limit.")] = True


class LogprobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The computation of confidence from token probabilities; between 0 and 1."""

    measure: Annotated[
        Measure,
        Meta(
            description="`mean`: geometric mean over all tokens; `window`: the lowest such mean "
            "over "
            "`window_tokens` consecutive tokens; `margin`: mean lead over the second "
            "likeliest token."
        ),
    ] = "mean"
    window_tokens: Annotated[int, Meta(ge=1, le=4096)] = 16
    when_unknown: Annotated[
        WhenUnknown,
        Meta(description="What happens to an answer whose provider reports no logprobs."),
    ] = "escalate"


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that rates how good an answer is; its requests are billed to the same key."""

    model: Annotated[
        Text | None,
        Meta(description="A model of this file. [for a verifier: the stage's own model]"),
    ] = None
    prompt: Annotated[
        str | None, Meta(description="Its instruction, instead of the built-in one.")
    ] = None
    timeout_s: Annotated[Seconds, Meta(description="Longest wait for its answer.")] = 10.0
    max_tokens: Annotated[int, Meta(ge=1, le=4096, description="Limit of tokens it generates.")] = 8
    expected_s: Annotated[
        Seconds | None, Meta(description="How long it takes, for `explain` without a ledger.")
    ] = None
    on_error: Annotated[
        WhenUnknown, Meta(description="What happens to the answer if the judge gives no verdict.")
    ] = "escalate"


class AcceptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The test of whether an answer is good enough to return."""

    by: AcceptBy
    threshold: Annotated[
        Annotated[float, Meta(ge=0, le=10)] | None,
        Meta(
            description="Lowest score that is accepted: a probability for logprobs (0.8), verifier "
            "(0.5) and classifier (0.5, that the request is simple); points out of 10 for a "
            "judge (7).",
        ),
    ] = None
    rules: AnswerRuleSettings = AnswerRuleSettings()
    logprobs: LogprobSettings = LogprobSettings()
    judge: JudgeSettings = JudgeSettings()

    def __post_init__(self) -> None:
        if self.by == "judge" and self.judge.model is None:
            raise ValueError("by: judge needs `judge: {model: ...}`, a model of this file")
        if self.threshold is not None:
            if self.by == "rules":
                raise ValueError("threshold: rules have no score; remove it")
            if self.by != "judge" and self.threshold > 1:
                raise ValueError(f"threshold: {self.threshold:g} is not a probability (0 to 1)")
            if self.by == "judge" and self.threshold < 1:
                raise ValueError(f"threshold: {self.threshold:g} is below 1 of 10 points")

    @property
    def least(self) -> float:
        """The threshold, or its default."""
        if self.threshold is not None:
            return self.threshold
        return {"logprobs": 0.8, "judge": 7.0}.get(self.by, 0.5)


class StageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a cascade; the short form is its name alone."""

    model: Text
    timeout_s: Annotated[
        Seconds | None, Meta(description="Time after which the next stage is tried.")
    ] = None
    acceptance_rate: Annotated[
        Probability | None,
        Meta(description="Share of its answers that are accepted, for `explain` without a ledger."),
        formerly("accepted"),
    ] = None
    expected_s: Annotated[
        Seconds | None, Meta(description="How long it takes, for `explain` without a ledger.")
    ] = None


class CascadeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Models tried in order, each when the answer of the previous one is not good enough."""

    stages: Annotated[
        tuple[StageSettings, ...],
        Meta(
            min_length=2,
            description="Models tried in this order; the last one's answer is streamed unchecked.",
        ),
    ]
    accept: AcceptSettings
    heartbeat_s: Annotated[
        Seconds,
        Meta(
            description="Interval of keep-alive messages to a waiting streaming client. The "
            "response "
            "headers then go out before it is known which model answers."
        ),
    ] = 15.0

    @property
    def models(self) -> tuple[str, ...]:
        """The stages, the last first."""
        return tuple(stage.model for stage in reversed(self.stages))


class GiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The slow model's share of the earlier work."""

    draft: Annotated[
        bool,
        Meta(
            description="Whether the slow model gets the rejected draft as a note in its "
            "instructions."
        ),
    ] = False


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A fast model that drafts, and a slow model that answers if the draft is not good enough."""

    draft: StageSettings
    decide: Annotated[AcceptSettings, Meta(description="When the draft is returned as the answer.")]
    final: StageSettings
    give: GiveSettings = GiveSettings()
    speculative: Annotated[
        bool,
        Meta(
            description="Whether the slow model starts at once, beside the draft, and is "
            "cancelled if "
            "the draft is accepted: faster, but more expensive."
        ),
    ] = False
    heartbeat_s: Annotated[Seconds, Meta(description="As in a cascade.")] = 15.0

    def __post_init__(self) -> None:
        if self.speculative and self.give.draft:
            raise ValueError(
                "speculative and give.draft exclude each other: no draft exists yet when the "
                "slow model starts; remove one"
            )

    @property
    def models(self) -> tuple[str, ...]:
        """The slow one first."""
        return self.final.model, self.draft.model
