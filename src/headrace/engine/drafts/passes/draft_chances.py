"""How likely drafts of a model are right, learned by comparing them with what came.

Drafts are told apart by their place in a row, p(j) being the chance of the j-th where those before
it are right, and by the request and by all of about its temperature:

    p(j) = (h_r + W * p_s(j)) / (n_r + W),   p_s(j) = (h_s + V * p_s(j - 1)) / (n_s + V)

h of n drafts at place j were right: of the request (r), of all like it (s). What is not known of a
place yet is what the one before it does.

Counts say too late that a text has changed: so that one of two other explanations is weighed beside
them, that it has become easy (drafts are right with EASY) or hard (HARD), each with CHANGE of the
weight before, by the drafts that were right, or wrong, in a row. After m wrong ones it is hard with

    w = CHANGE * (1 - HARD)^m / (CHANGE * (1 - HARD)^m + (1 - CHANGE) * (1 - p(1))^m)

and the chance is w * HARD + (1 - w) * p(j). While the account of gains is full half of that is left
out: what is not drafted is not compared, so that bad luck would silence a good draft. For the same
reason it fades with the tokens that come without drafts.

What makes drafts knows itself how sure it is: of headrace-head's drafts those that it gives less
than 0.2 are right 20 times of 100, those of 0.6 to 0.8 84 and those above 0.97 always (at
completion; the table is in docs/speculation.md). So the chance of a draft that is there, by the
probability that its maker gives it, is learned as well, of all requests, in kinds of probabilities;
and how often a row of drafts that may go on does.

Drafts are chosen where their chances look high, some of them by error alone. So what was expected
of those that were chosen is compared with what came of them, and all chances are less by that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from headrace.engine.drafts.passes.draft_generator import RatedDraft
from headrace.engine.request import Request

CHANGE = 0.02
"""Before anything speaks for it: a text changes its kind every fifty drafts."""
EASY, HARD = 0.9, 0.05
FADING_TOKENS = 16.0
"""That came without drafts, after which a hard text is half as certain."""
SHIELD = 0.5
"""What is left out of a hard text's weight where the account is full."""

_TEMPERATURES = (0.01, 0.4, 0.6, 0.8, 0.95)
"""Between which acceptance is told apart: the wider the distributions, the less two draws agree."""
_CHANCE_BEGIN = 0.6
_WEIGHT_BEGIN = 8.0
_WEIGHT_ALL = 6.0
_MOST_ALL = 256.0
_MOST_REQUEST = 48.0
"""Comparisons of a place that are remembered. With half of it a draft that is right three times of
ten is given up by bad luck."""
_PROBABILITIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Where the kinds begin; below the first is one more."""
_WEIGHT_EXPECTED = 8.0
_MOST_EXPECTED = 64.0
"""Drafts expected to be right, of those chosen, that are remembered."""


class _Shares:
    """Right ones of comparisons, by place."""

    def __init__(self, places: int, most: float) -> None:
        self._most = most
        self.right = [0.0] * places
        self.all = [0.0] * places

    def note(self, place: int, *, right: bool) -> None:
        self.right[place] += right
        self.all[place] += 1.0
        if self.all[place] > self._most:
            self.right[place] /= 2
            self.all[place] /= 2

    def chance(self, place: int, prior: float, weight: float) -> float:
        """prior: what counts as much as so many comparisons."""
        return (self.right[place] + weight * prior) / (self.all[place] + weight)


class _Known:
    """The counts of drafts of all requests that are alike."""

    def __init__(self, places: int) -> None:
        self.shares = _Shares(places, _MOST_ALL)
        self.made = _Shares(places, _MOST_ALL)
        """Of drafts that were wanted at a place, those before them being there: those made."""
        self.by_probability = _Shares(1 + len(_PROBABILITIES), _MOST_ALL)
        """Of drafts of each kind of probability."""


class _History:
    """The state of one request."""

    def __init__(self, places: int, known: _Known) -> None:
        self.shares = _Shares(places, _MOST_REQUEST)
        self.known = known
        """Of all requests like it."""
        self.start = 0
        """The place of the first of `drafts`."""
        self.drafts: Sequence[int] = ()
        """The last ones, whose tokens have not come yet."""
        self.rated: Sequence[RatedDraft] = ()
        """Those of them whose probability is known, and perhaps one that was left out."""
        self.expected = 0.0
        """How many of them were expected to be right; 0 where they were not chosen for that."""
        self.num_right = self.num_wrong = 0
        """In a row, the last ones that were compared; one of the two is 0."""
        self.compared_until = 0
        """The tokens there were then."""

    def change(self, chance: float, rich: float, length: int) -> tuple[float, float]:
        """The weight of a change, and the chance of a draft behind it. chance: of the first one
        without it; rich: how full the account is, 0 to 1; length: tokens there are."""
        if self.num_wrong:
            hard = CHANGE * (1.0 - HARD) ** self.num_wrong
            as_before = (1.0 - CHANGE) * (1.0 - chance) ** self.num_wrong
            fading = 0.5 ** ((length - self.compared_until) / FADING_TOKENS)
            weight = (1.0 - SHIELD * rich) * fading * hard / (hard + as_before)
            return (weight if chance > HARD else 0.0), HARD
        easy = CHANGE * EASY**self.num_right
        as_before = (1.0 - CHANGE) * chance**self.num_right
        return (easy / (easy + as_before) if chance < EASY else 0.0), EASY


class DraftChances:
    """The chances of the drafts of one model, and what they are reckoned from."""

    def __init__(self, most: int) -> None:
        """most: drafts of a row."""
        self._most = most
        self._known = [_Known(most) for _ in range(1 + len(_TEMPERATURES))]
        self._histories: dict[Request, _History] = {}
        self._expected = self._came = _WEIGHT_EXPECTED
        """Of drafts that were chosen: those expected to be right, and those that were."""

    def hopes(self, request: Request, room: int, rich: float) -> list[float]:
        """Of k drafts, how many are expected to be right, for k of 1 to what there is room for.
        rich: how full the account of gains is, 0 to 1."""
        history = self._history(request)
        known, own, made = history.known.shares, history.shares, history.known.made
        overrated = min(1.0, self._came / self._expected)
        hopes, hope, reached, prior = list[float](), 0.0, overrated, _CHANCE_BEGIN
        weight = other = 0.0
        for place in range(min(room, self._most)):
            prior = known.chance(place, prior, _WEIGHT_BEGIN)
            chance = own.chance(place, prior, _WEIGHT_ALL)
            if not place:
                weight, other = history.change(chance, rich, len(request.token_ids))
            reached *= chance + weight * (other - chance)
            reached *= made.chance(place, 1.0, _WEIGHT_BEGIN)
            hope += reached
            hopes.append(hope)
        return hopes

    def lengths(self, request: Request, room: int) -> list[float]:
        """Of k drafts that are wanted, how many are expected to be made, for k of 1 to what there
        is room for."""
        history = self._history(request)
        made = history.known.made
        lengths, length, reached = list[float](), 0.0, 1.0
        for place in range(min(room, self._most)):
            reached *= made.chance(place, 1.0, _WEIGHT_BEGIN)
            length += reached
            lengths.append(length)
        return lengths

    def of(self, request: Request, probability: float) -> float:
        """The chance of a draft that its maker gives this probability, those before it being
        right."""
        kind = bisect_right(_PROBABILITIES, probability)
        return self._history(request).known.by_probability.chance(kind, probability, _WEIGHT_BEGIN)

    def at(self, request: Request, place: int) -> float:
        """The chance of a draft at a place, as far as it is known without seeing it."""
        shares, chance = self._history(request).known.shares, _CHANCE_BEGIN
        for at in range(min(place + 1, self._most)):
            chance = shares.chance(at, chance, _WEIGHT_BEGIN)
        return chance

    def begin(
        self,
        request: Request,
        drafts: Sequence[int],
        *,
        wanted: int,
        expected: float = 0.0,
        rated: Sequence[RatedDraft] = (),
    ) -> None:
        """Drafts of a request were made, maybe fewer than wanted. expected: how many are expected
        to be right; 0 where they were not chosen for that. rated: those whose probability is known,
        with one that was left out."""
        history = self._history(request)
        history.start, history.drafts = len(request.token_ids), drafts
        history.expected, history.rated = expected, rated
        for place in range(min(wanted, len(drafts) + 1, self._most)):
            history.known.made.note(place, right=place < len(drafts))

    def note(self, request: Request, num_before: int, token_ids: Sequence[int]) -> int | None:
        """A row gave a request these tokens, which had so many before. How many drafts of it were
        right; None where none were made."""
        history = self._histories.get(request)
        if history is None or not (history.drafts or history.rated):
            return None
        drafts, history.drafts = history.drafts, ()
        rated, history.rated = history.rated, ()
        if history.start != num_before:
            return None
        for (draft, probability), token_id in zip(rated, token_ids, strict=False):
            kind = bisect_right(_PROBABILITIES, probability)
            history.known.by_probability.note(kind, right=draft == token_id)
            if draft != token_id:
                break
        if not drafts:
            return None
        history.compared_until = num_before + len(token_ids)
        num_right = 0
        for place, (draft, token_id) in enumerate(zip(drafts, token_ids, strict=False)):
            right = draft == token_id
            history.known.shares.note(place, right=right)
            history.shares.note(place, right=right)
            if not right:
                history.num_right, history.num_wrong = 0, history.num_wrong + 1
                break
            history.num_right, history.num_wrong = history.num_right + 1, 0
            num_right += 1
        if history.expected:
            self._expected += history.expected
            self._came += num_right
            if self._expected > _MOST_EXPECTED:
                self._expected, self._came = self._expected / 2, self._came / 2
        return num_right

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._histories.pop(request, None)

    def _history(self, request: Request) -> _History:
        history = self._histories.get(request)
        if history is None:
            like_it = self._known[bisect_right(_TEMPERATURES, request.params.temperature)]
            history = self._histories[request] = _History(self._most, like_it)
        return history
