"""Texts that are drawn beforehand, and what guesses them: a source that costs nothing, and a draft
model in passes of recorded times.

A text is a sequence of places at which a guess is right or not, drawn from chances, so that every
choice of drafts decodes the same text.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.speculation.recording import Recording
from headrace.engine.drafts.passes.draft_generator import (
    CATCH_UP_TOKENS,
    FEW_TOKENS,
    Judge,
    JudgedDraft,
    Pass,
    RatedDraft,
)
from headrace.engine.drafts.source import MOST_MATCH, Guess
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request

SHARPNESS = 0.5
"""How much a draft model knows of whether it is right: 0 for nothing, 1 for all. headrace-head,
right 62 times of 100 at completion, is right 90 times of 100 where it says 0.6 and more and 44
below (docs/engine.md), which is 0.74 by the one and 0.28 by the other."""


class Text:
    """Whether a guess is right at each place of a stream's text."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)
        self._right: list[bool] = []
        self._left_of_span = 0
        self._rating = random.Random(f"rating of {seed}")
        self._draws: list[float] = []

    def right(self, place: int, chance: float, *, spans: bool) -> bool:
        """At a place; those before it were asked for first."""
        while len(self._right) <= place:
            self._right.append(self._drawn(chance, spans))
        return self._right[place]

    def probability(self, place: int, chance: float, *, spans: bool) -> float:
        """That a draft model gives its guess at a place: one of two, of which each is the share of
        right guesses among those that have it. The more often a guess is right, the more often it
        is sure."""
        right = self.right(place, chance, spans=spans)
        sure, unsure = chance + SHARPNESS * (1 - chance), chance - SHARPNESS * chance
        while len(self._draws) <= place:
            self._draws.append(self._rating.random())
        return sure if self._draws[place] < (sure if right else unsure) else unsure

    def match(self, place: int) -> int:
        """How long a match is before a place: what follows a wrong guess has a short one."""
        count = 2
        while count < MOST_MATCH and count - 2 < place and self._right[place - count + 1]:
            count += 1
        return count

    def _drawn(self, chance: float, spans: bool) -> bool:
        if not spans:
            return self._rng.random() < chance
        if self._left_of_span:
            self._left_of_span -= 1
            return True
        # A span of 24 begins so often that they are a share `chance` of the text.
        if self._rng.random() < chance / (1 - chance) / 24:
            self._left_of_span = 24
        return self._rng.random() < 0.03


class Stream:
    """A request and its text."""

    def __init__(self, number: int, texts: int) -> None:
        self.request = Request(f"r{number}", [0], 1, SamplingParams(temperature=0), 1 << 30)
        self.text = Text(f"text {number} of {texts}" if texts else f"text {number}")
        self.chance, self.spans = 0.0, False
        self.read = 0
        """Tokens of it that a draft model has read, or passed over."""
        self.begun = 0
        """Those that it passed over: of which it has nothing."""

    def run(self, most: int) -> int:
        """Right guesses in a row from where it is, at most so many."""
        place, count = len(self.request.token_ids), 0
        while count < most and self._right(place + count):
            count += 1
        return count

    def advance(self, count: int) -> list[int]:
        """The tokens of a row with so many drafts."""
        right = self.run(count)
        place = len(self.request.token_ids)
        last = self._right(place + right) if right == count else False
        tokens = [1] * right + [1 if last else 2]
        self.request.token_ids += tokens
        return tokens

    def match(self) -> int:
        """Of a guess where it is."""
        place = len(self.request.token_ids)
        self._right(place)
        return self.text.match(place)

    def probability(self, behind: int) -> float:
        """That a draft model gives its draft so many places behind where it is."""
        place = len(self.request.token_ids) + behind
        return self.text.probability(place, self.chance, spans=self.spans)

    def _right(self, place: int) -> bool:
        return self.text.right(place, self.chance, spans=self.spans)


class TextGuesses:
    """A source that guesses every stream's text, at its chances."""

    name = "text"

    def __init__(self) -> None:
        self.streams: dict[Request, Stream] = {}

    def begin_step(self) -> None:
        """Nothing is done by and by."""

    def guess(self, request: Request, most: int) -> Guess:
        """Token 1, which is what comes where a guess is right."""
        return Guess([1] * most, self.streams[request].match())

    def clear(self) -> None:
        """Nothing is kept."""

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self.streams.pop(request, None)


class TextModel:
    """A draft model that does the same in passes of recorded times."""

    def __init__(self, recording: Recording, streams: dict[Request, Stream]) -> None:
        self._recording = recording
        self._streams = streams
        self.passes: list[Pass] = []
        if recording.passes:  # as at warm-up
            self.passes = [Pass(1, recording.pass_s(1))]
        self.num_guesses = 0
        self._rated: dict[Request, list[RatedDraft]] = {}

    def rated(self, request: Request) -> Sequence[RatedDraft]:
        """All of the last guess, as of a chain."""
        return self._rated.get(request, ())

    def num_passes(self, num_drafts: int) -> int:
        """One for each."""
        return num_drafts

    def lag(self, request: Request) -> int:
        """Of the tokens it has to read."""
        return len(request.token_ids) - self._streams[request].read

    def num_at_hand(self, request: Request) -> int:
        """Of a request."""
        stream = self._streams[request]
        return stream.read - stream.begun

    def watch(self, requests: object) -> None:
        """It reads tokens alone."""

    def take_watching_s(self) -> float:
        """Nothing."""
        return 0.0

    def num_missing(self, request: Request) -> int:
        """Nothing beside those."""
        del request
        return 0

    def clear(self) -> None:
        """Nothing is kept."""

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._streams.pop(request, None)

    def guess(
        self,
        wanted: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
        judge: Judge | None = None,
    ) -> dict[Request, list[int]]:
        """As many drafts as are wanted, of requests that are read by now."""
        self.num_guesses += 1
        self._rated.clear()
        left = CATCH_UP_TOKENS if most_read is None else most_read
        read, found = 0, dict[Request, list[int]]()
        for request, _ in wanted:
            if latest:
                stream, unread = self._streams[request], len(request.token_ids) - left
                if stream.read < unread:
                    stream.read = stream.begun = unread
            lag = self.lag(request)
            tokens = lag if lag <= FEW_TOKENS else min(lag, left)
            left -= tokens if lag > FEW_TOKENS else 0
            read += tokens
            self._streams[request].read += tokens
            if tokens == lag:
                found[request] = []
        self.passes = [Pass(read, self._recording.pass_s(read))] if read else []
        counts = dict(wanted)
        going = self._advance(found, counts, judge)
        while going:
            self.passes.append(Pass(len(going), self._recording.pass_s(len(going))))
            going = self._advance({request: found[request] for request in going}, counts, judge)
        return {request: drafts for request, drafts in found.items() if drafts}

    def _advance(
        self, rows: dict[Request, list[int]], counts: dict[Request, int], judge: Judge | None
    ) -> list[Request]:
        """Have a pass draft for each of these rows, and which of them go on."""
        made: list[JudgedDraft] = []
        for request, drafts in rows.items():
            place = len(drafts)
            probability = self._streams[request].probability(place)
            drafts.append(1)
            self._rated.setdefault(request, []).append(RatedDraft(1, probability))
            made.append(JudgedDraft(request, place, probability, len(drafts) < counts[request]))
        verdicts = ["on"] * len(made) if judge is None else judge(made)
        for draft, verdict in zip(made, verdicts, strict=True):
            if verdict == "drop":
                rows[draft.request].pop()
        return [
            draft.request
            for draft, verdict in zip(made, verdicts, strict=True)
            if draft.more and verdict == "on"
        ]
