"""Step times that are told, in place of those that an engine measures."""

from __future__ import annotations

from typing import NamedTuple

from headrace.engine.scheduling.step_budget import StepLoad


class Rates(NamedTuple):
    """Seconds of each part of a step; a StepTimes."""

    decode_s: float = 0.0
    """Of a request that decodes."""
    token_s: float = 0.0
    pair_s: float = 0.0
    context_s: float = 0.0
    """Of a token that one which decodes attends to."""

    def seconds(self, load: StepLoad) -> float:
        return (
            self.decode_s * load.decodes
            + self.token_s * load.prompt_tokens
            + self.pair_s * (load.pairs + load.draft_pairs)
            + self.context_s * load.context_tokens
        )
