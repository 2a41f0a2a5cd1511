"""What steps take on this machine, learned from the steps: the rates that prompts are planned by.

    seconds  ≈  D(decodes, drafts) + a * prompt tokens + b * pairs

D is what StepCosts (drafts/step_costs.py) has learned of steps that only decode, which is the same
for who decides on drafts; of a step in which nobody decodes, that of one request: weights are read
there too. Products of a prompt's tokens take a each, whose weights are read already, and its
attention b for each pair of a token and one it attends to.

a and b are those of least squares of the error relative to the step, over the steps that computed a
prompt, of which one counts KEPT as much as the next: chunks of 30 tokens have not quite the rates
of chunks of 512. A step that something else disturbed, and that took many times as long, so counts
for nearly nothing. Where contexts were short, little is known of b: it is then held near what pairs
take by their number of operations.
"""

from __future__ import annotations

from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.scheduling.step_budget import StepLoad

KEPT = 0.9
"""Of what steps count, with each further one."""
LEAST_SHARE = 0.05
"""Of a step, that is its prompt's at least, if decoding alone is thought to have taken all of it.
"""
PAIR_WEIGHT = 0.01
"""By how much b is held where its number of operations says, beside the tokens' own weight: little
beside steps at a depth where pairs take a tenth of the time."""


class MeasuredTimes:
    """The step times of one engine; a StepTimes."""

    def __init__(self, costs: StepCosts, pair_tokens: float) -> None:
        """costs: of steps that only decode, which whoever owns them notes there. pair_tokens: a
        pair's operations as a share of those of a token's products, above 0."""
        self._costs = costs
        self._pair_tokens = pair_tokens
        self._token_s = 0.0
        self._pair_s = 0.0
        # Sums of tokens^2, tokens * pairs, pairs^2, tokens, pairs: each over the seconds of a step,
        # pairs in tokens.
        self._tt = self._tp = self._pp = self._t = self._p = 0.0

    def seconds(self, load: StepLoad) -> float:
        """What a step is predicted to take; 0 for a prompt before the first was computed."""
        prompt_s = self._token_s * load.prompt_tokens + self._pair_s * load.pairs
        return self._decode_s(load) + prompt_s

    def note(self, load: StepLoad, seconds: float) -> None:
        """Count a step that computed prompts."""
        if seconds <= 0 or not load.prompt_tokens:
            return
        share = max(LEAST_SHARE, 1 - self._decode_s(load) / seconds)
        tokens, pairs = load.prompt_tokens / seconds, load.pairs * self._pair_tokens / seconds
        self._tt = KEPT * self._tt + tokens * tokens
        self._tp = KEPT * self._tp + tokens * pairs
        self._pp = KEPT * self._pp + pairs * pairs
        self._t = KEPT * self._t + share * tokens
        self._p = KEPT * self._p + share * pairs
        self._solve()

    def _decode_s(self, load: StepLoad) -> float:
        requests = max(1, load.decodes)
        return self._costs.seconds(requests, requests + load.drafts)

    def _solve(self) -> None:
        """Find the a and b, 0 or above, that the sums are least wrong by."""
        held = PAIR_WEIGHT * self._tt
        tt, tp, pp = self._tt + held, self._tp - held, self._pp + held
        determinant = tt * pp - tp * tp
        token_s = (self._t * pp - self._p * tp) / determinant
        pair_s = (self._p * tt - self._t * tp) / determinant
        if token_s < 0:
            token_s, pair_s = 0.0, self._p / pp
        elif pair_s < 0:
            token_s, pair_s = self._t / tt, 0.0
        self._token_s, self._pair_s = token_s, pair_s * self._pair_tokens
