"""Models that are asked one after another until an answer is good enough."""

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
    """What makes an answer no good whatever else is said of it. They cost nothing and are looked at
    first."""

    refusals: Annotated[
        bool, Meta(description="Answers that begin as refusals do (`I cannot help with`).")
    ] = True
    refusal_phrases: Annotated[
        tuple[Text, ...], Meta(description="More beginnings of refusals; case does not count.")
    ] = ()
    min_chars: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="Shorter texts are no good."),
        formerly("least_chars"),
    ] = 1
    json: Annotated[
        bool, Meta(description="JSON was asked for and it is none, or not as its schema says.")
    ] = True
    tool_arguments: Annotated[
        bool,
        Meta(description="Calls of tools that there are not, or not as their schema says."),
    ] = True
    length: Annotated[bool, Meta(description="Answers cut off by the most tokens allowed.")] = True


class LogprobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How sure a model was of its tokens: probabilities between 0 and 1."""

    measure: Annotated[
        Measure,
        Meta(
            description="`mean`: geometric mean over all tokens; `window`: the lowest such mean of "
            "`window_tokens` tokens in a row; `margin`: mean lead over the second likeliest token."
        ),
    ] = "mean"
    window_tokens: Annotated[int, Meta(ge=1, le=4096)] = 16
    when_unknown: Annotated[
        WhenUnknown,
        Meta(description="What is done with an answer whose provider tells no logprobs."),
    ] = "escalate"


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is asked how good an answer is; its word is billed to the same key."""

    model: Annotated[
        Text | None,
        Meta(description="A model of this file. [for a verifier: the stage's own model]"),
    ] = None
    prompt: Annotated[
        str | None, Meta(description="Its instruction, in place of the common one.")
    ] = None
    timeout_s: Annotated[Seconds, Meta(description="Longest wait for it.")] = 10.0
    max_tokens: Annotated[int, Meta(ge=1, le=4096, description="Most tokens it may answer.")] = 8
    expected_s: Annotated[
        Seconds | None, Meta(description="How long it takes, for `explain` without a ledger.")
    ] = None
    on_error: Annotated[
        WhenUnknown, Meta(description="What is done with the answer where it has none.")
    ] = "escalate"


class AcceptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When an answer is good enough to be told."""

    by: AcceptBy
    threshold: Annotated[
        Annotated[float, Meta(ge=0, le=10)] | None,
        Meta(
            description="At least that: a probability for logprobs (0.8), verifier (0.5) and "
            "classifier (0.5, that the request is simple); points of 10 for a judge (7).",
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
                raise ValueError("threshold: rules hold or do not; leave it out")
            if self.by != "judge" and self.threshold > 1:
                raise ValueError(f"threshold: {self.threshold:g} is no probability (0 to 1)")
            if self.by == "judge" and self.threshold < 1:
                raise ValueError(f"threshold: {self.threshold:g} is below 1 of 10 points")

    @property
    def least(self) -> float:
        """The threshold, or what stands for it."""
        if self.threshold is not None:
            return self.threshold
        return {"logprobs": 0.8, "judge": 7.0}.get(self.by, 0.5)


class StageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a cascade; may be written as its name alone."""

    model: Text
    timeout_s: Annotated[
        Seconds | None, Meta(description="After that the next stage is asked.")
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
    """The first model is asked first; the next one where its answer is not good enough."""

    stages: Annotated[
        tuple[StageSettings, ...],
        Meta(min_length=2, description="The last one's answer is told unchecked, as it comes."),
    ]
    accept: AcceptSettings
    heartbeat_s: Annotated[
        Seconds,
        Meta(
            description="How often a stream that waits is told that it is alive. Its head then "
            "goes out before it is known who answers."
        ),
    ] = 15.0

    @property
    def models(self) -> tuple[str, ...]:
        """The stages, the last first."""
        return tuple(one.model for one in reversed(self.stages))


class GiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the slow model is given of what came before it."""

    draft: Annotated[
        bool, Meta(description="The draft that was not accepted, as a note in its instructions.")
    ] = False


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A fast model drafts; whether that is enough is decided; if not, a slow model answers."""

    draft: StageSettings
    decide: Annotated[AcceptSettings, Meta(description="When the draft is the answer.")]
    final: StageSettings
    give: GiveSettings = GiveSettings()
    speculative: Annotated[
        bool,
        Meta(
            description="Whether the slow model is asked at once, beside the draft, and cancelled "
            "if that is accepted: sooner, and dearer."
        ),
    ] = False
    heartbeat_s: Annotated[Seconds, Meta(description="As of a cascade.")] = 15.0

    def __post_init__(self) -> None:
        if self.speculative and self.give.draft:
            raise ValueError(
                "speculative and give.draft exclude each other: there is no draft yet when the "
                "slow model is asked; drop one"
            )

    @property
    def models(self) -> tuple[str, ...]:
        """The slow one first."""
        return self.final.model, self.draft.model
