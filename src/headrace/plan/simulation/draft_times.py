"""The time of steps with drafts in a simulation, where it was measured of the model.

    seconds = those of the step without drafts + what drafts were measured to add
            + passes of the draft, one for each draft of a request

Steps beyond the sizes that were measured take what the latency model says of as many tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.scheduling.step_budget import StepLoad
from headrace.plan.step.latency_model import LatencyModel
from headrace.plan.step.measured_steps import MeasuredSteps


@dataclass(frozen=True, kw_only=True)
class DraftTimes:
    """Times of steps with drafts of a model."""

    steps: MeasuredSteps
    draft: str | None = None
    """Whose passes make the drafts; None where making them takes no time."""

    def seconds(self, latency: LatencyModel, load: StepLoad) -> float:
        """Of a step, with the plan's latencies for all that is no draft."""
        if not load.drafts or not load.decodes:
            return latency.seconds(load)

        def plain_s(context: int) -> float:
            return latency.seconds(StepLoad(load.decodes, 0, load.decodes * context))

        each = load.drafts / load.decodes
        passes = 0.0
        if self.draft is not None:
            ratio = self.steps.pass_ratio(self.draft, min(load.decodes, self.steps.batches[-1]))
            assert ratio is not None, "the draft is one that was measured"
            passes = each * ratio * plain_s(self.steps.context_tokens)
        tokens = load.decodes + load.drafts
        if not self.steps.knows(load.decodes, tokens):
            return latency.seconds(load) + passes
        without = load._replace(drafts=0, draft_pairs=0)
        return latency.seconds(without) + self.steps.added_s(load.decodes, tokens, plain_s) + passes
