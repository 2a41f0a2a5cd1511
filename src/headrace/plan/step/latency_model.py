"""How long one step of an engine takes, as a line in what the step does.

Prefill is a + b tokens, decode is c + d batch + e context, as DistServe (Y. Zhong and others, 2024)
fits them; a step of chunked prefill does both at once and pays the fixed part once. Attention of a
prompt over what comes before it is a term of its own, as it grows with the square of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from headrace.engine.scheduling.step_budget import StepLoad
from headrace.plan.validation import not_below


@dataclass(frozen=True, kw_only=True)
class LatencyModel:
    """Seconds by what a step holds; every part at least 0."""

    step_s: float
    """Whatever it holds."""
    prefill_token_s: float
    """Each prompt token."""
    prefill_pair_s: float
    """Each pair of a prompt token and one it attends to."""
    decode_request_s: float
    """Each request that decodes."""
    decode_context_token_s: float
    """Each token of context that a decoding request attends to."""
    request_s: float = 0.0
    """Once a request outside of all steps, from its arrival to the queue and from the last step to
    the client."""
    source: str = ""
    """What fitted or stated it, as it is printed."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "source":
                not_below(
                    name, value, 0.0, "it is a time in seconds; a fit that finds less is wrong"
                )

    def step(
        self,
        prefills: Iterable[tuple[int, int]],
        decode_requests: int,
        decode_context_tokens: int,
    ) -> float:
        """Seconds of a step.

        prefills: first position and number of tokens of each piece of a prompt in it.
        decode_context_tokens: of all decoding requests together.
        """
        load = StepLoad(decode_requests, 0, decode_context_tokens)
        for start, count in prefills:
            load = load.with_prompt(start, count)
        return self.seconds(load)

    def seconds(self, load: StepLoad) -> float:
        """Seconds of a step as the engine's scheduler counts it. Drafts cost what as many tokens of
        a prompt do at that place."""
        return (
            self.step_s
            + self.prefill_token_s * (load.prompt_tokens + load.drafts)
            + self.prefill_pair_s * (load.pairs + load.draft_pairs)
            + self.decode_request_s * load.decodes
            + self.decode_context_token_s * load.context_tokens
        )
