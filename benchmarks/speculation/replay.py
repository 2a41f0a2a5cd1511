"""The controller replayed over recorded step times: `python -m benchmarks.speculation.replay FILE`.

    python -m benchmarks.speculation.replay FILE --record [--model MODEL] [--draft MODEL]
    python -m benchmarks.speculation.replay FILE

With --record the steps of a real run are timed first (recording.py) and written to FILE. A replay
has no model: a text is a sequence of places at which a guess is right or not, drawn beforehand from
a pattern's chances, so that every choice of lengths decodes the same text; a step takes the median
of the recorded steps of its size, and the controller is told one of those recorded, disturbances
and all. A pattern is a list of phases of so many streams; each phase ends when the same tokens have
been given. Printed for each pattern: tokens per second without drafts, with each fixed length, and
as the controller chooses, and its share of off, of the best fixed length over the whole pattern,
and of off in its worst phase. The same file gives the same table, always.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

from benchmarks.markdown import surroundings, table
from benchmarks.speculation.drawn_texts import Stream, TextGuesses, TextModel
from benchmarks.speculation.recording import Recording, read_recording, record
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.speculation import Speculation
from headrace.engine.scheduling.step_rows import DRAFT_LOGIT_ROWS

LENGTHS = (1, 2, 3, 5, 8)
"""Fixed numbers of drafts of every row."""
MOST_DRAFTS = 8
TOKENS = 400
"""Of each stream in a phase, and three times as many of one alone."""


class Phase(NamedTuple):
    """Streams of one kind of text."""

    streams: int
    chances: tuple[float, ...]
    """That a guess is right, of one stream after another, again and again."""
    spans: bool = False
    """Runs of 24 right guesses at that share of the text, and hardly any between them."""


def load(*streams: int, chance: float) -> tuple[Phase, ...]:
    """The same text of one number of streams after another."""
    return tuple(Phase(count, (chance,)) for count in streams)


_UP_AND_DOWN = (1, 4, 16, 32, 16, 4, 1)
PATTERNS: dict[str, tuple[Phase, ...]] = {
    **{f"1 stream, {chance:g}": (Phase(1, (chance,)),) for chance in (0.05, 0.3, 0.6, 0.9)},
    **{f"8 streams, {chance:g}": (Phase(8, (chance,)),) for chance in (0.05, 0.5, 0.9)},
    **{
        f"1 to 32 to 1, {chance:g}": load(*_UP_AND_DOWN, chance=chance)
        for chance in (0.1, 0.5, 0.9)
    },
    "easy, then hard": tuple(Phase(1, (chance,)) for chance in (0.9, 0.05) * 3),
    "easy, then hard, 8": tuple(Phase(8, (chance,)) for chance in (0.9, 0.05) * 3),
    "1 to 32 to 1, easy, then hard": load(*_UP_AND_DOWN, chance=0.9)
    + load(*_UP_AND_DOWN, chance=0.05),
    "8 streams, some easy": (Phase(8, (0.9, 0.05, 0.05, 0.3)),),
    "1 stream, copies": (Phase(1, (0.4,), spans=True),),
    "8 streams, copies": (Phase(8, (0.4,), spans=True),),
}


class Pace(NamedTuple):
    """What was given in what time."""

    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


class Replay:
    """The controller, or a fixed length, over the phases of a pattern."""

    def __init__(
        self, recording: Recording, fixed: int | None, *, kind: str = "lookup", texts: int = 0
    ) -> None:
        """fixed: drafts of every row; None for those that the controller takes. kind: of the
        drafts, `lookup`, which takes no time, or `model`, in passes. texts: which ones are drawn,
        and which disturbances."""
        self._recording, self._fixed, self._kind = recording, fixed, kind
        self._rng = random.Random(7 + texts)
        self._texts = texts
        self._source = TextGuesses()
        self._model = TextModel(recording, self._source.streams)
        is_model = kind == "model"
        self._speculation = Speculation(
            [] if is_model else [self._source],
            most_drafts=MOST_DRAFTS,
            # A chain, as far as it is asked here.
            model=cast(DraftChain[Any], self._model) if is_model else None,
            most_of_model=MOST_DRAFTS,
            clock=lambda: 0.0,
        )
        self._streams: list[Stream] = []
        self._number = 0

    def run(self, phase: Phase, tokens_each: int = TOKENS) -> Pace:
        """One phase."""
        self._open(phase)
        wanted = tokens_each * max(3, phase.streams)
        tokens, seconds = 0, 0.0
        while tokens < wanted:
            given, took_s = self._step()
            tokens += given
            seconds += took_s
        return Pace(tokens, seconds)

    def plain_s(self, batch: int) -> float:
        """What the controller takes a step of so many streams without drafts for."""
        return self._speculation.costs.plain_seconds(batch)

    def _open(self, phase: Phase) -> None:
        for gone in self._streams[phase.streams :]:
            self._speculation.forget(gone.request)
        del self._streams[phase.streams :]
        while len(self._streams) < phase.streams:
            stream = Stream(self._number, self._texts)
            self._number += 1
            self._streams.append(stream)
            self._source.streams[stream.request] = stream
        for at, stream in enumerate(self._streams):
            stream.chance = phase.chances[at % len(phase.chances)]
            stream.spans = phase.spans

    def _step(self) -> tuple[int, float]:
        streams = self._streams
        batch, num_guesses = len(streams), self._model.num_guesses
        if self._fixed is None:
            rows = [(stream.request, MOST_DRAFTS) for stream in streams]
            self._speculation.begin_step(rows, batch, DRAFT_LOGIT_ROWS)
            counts = [
                len(self._speculation.drafts(stream.request, MOST_DRAFTS)) for stream in streams
            ]
        else:
            counts = [min(self._fixed, DRAFT_LOGIT_ROWS // batch)] * batch
        places = batch + sum(counts)
        passes_s = self._passes_s(counts, num_guesses)
        took_s = self._recording.step_s(batch, places)
        tokens = 0
        for stream, count in zip(streams, counts, strict=True):
            before = len(stream.request.token_ids)
            given = stream.advance(count)
            if count:
                # K and V of all drafts but the last are there where they came.
                stream.read = before + min(len(given), count) - 1
            tokens += len(given)
            if self._fixed is None:
                self._speculation.note(stream.request, before, given)
        if self._fixed is None:
            noise = self._recording.noise(batch, places, self._rng)
            self._speculation.note_step(batch, places, took_s * noise + passes_s)
        return tokens, took_s + passes_s

    def _passes_s(self, counts: Sequence[int], num_guesses: int) -> float:
        """What the drafts of a step take to make. num_guesses: of those before it."""
        if self._kind == "lookup":
            return 0.0
        if self._fixed:
            streams = zip(self._streams, counts, strict=True)
            self._model.guess([(stream.request, count) for stream, count in streams])
        if self._model.num_guesses == num_guesses:
            return 0.0
        return sum(each.seconds for each in self._model.passes)


class Replayed(NamedTuple):
    """A pattern by the controller and by every fixed length, phase by phase."""

    fixed: dict[int, tuple[Pace, ...]]
    """By length; 0 is off."""
    auto: tuple[Pace, ...]

    def overall(self, length: int | None) -> float:
        """Tokens per second of all phases; of the controller for None."""
        paces = self.auto if length is None else self.fixed[length]
        return sum(pace.tokens for pace in paces) / sum(pace.seconds for pace in paces)

    @property
    def best(self) -> int:
        """The best length for the whole, off among them."""
        return max(self.fixed, key=self.overall)

    @property
    def of_off(self) -> float:
        """The controller's share of what there is without drafts."""
        return self.overall(None) / self.overall(0)

    @property
    def of_best(self) -> float:
        """Its share of the best length that is the same in all phases."""
        return self.overall(None) / self.overall(self.best)

    @property
    def worst_of_off(self) -> float:
        """Its least share of off in a phase."""
        return min(own.rate / off.rate for own, off in zip(self.auto, self.fixed[0], strict=True))

    @property
    def worst_of_best(self) -> float:
        """Its least share of the best length of that phase."""
        best: list[float] = [
            max(pace.rate for pace in paces) for paces in zip(*self.fixed.values(), strict=True)
        ]
        return min(own.rate / rate for own, rate in zip(self.auto, best, strict=True))


def replayed(
    recording: Recording,
    phases: Sequence[Phase],
    *,
    kind: str = "lookup",
    tokens_each: int = TOKENS,
    texts: int = 0,
) -> Replayed:
    """A pattern by every choice. kind, texts: as of Replay."""

    def paces(fixed: int | None) -> tuple[Pace, ...]:
        replay = Replay(recording, fixed, kind=kind, texts=texts)
        return tuple(replay.run(phase, tokens_each) for phase in phases)

    return Replayed({length: paces(length) for length in (0, *LENGTHS)}, paces(None))


def row(name: str, found: Replayed) -> list[str]:
    """A line of the table."""
    off = found.overall(0)
    return [
        name,
        f"{off:.0f}",
        *(f"{found.overall(length) / off:.2f}" for length in LENGTHS),
        f"{found.of_off:.3f}",
        f"{found.of_best:.3f}",
        f"{found.worst_of_off:.3f}",
    ]


def main() -> int:
    """Record where that is wanted, replay, and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("--record", action="store_true", help="time a run and write FILE first")
    parser.add_argument("--model", default="", help="checkpoint to record; the embedded one")
    parser.add_argument("--draft", help="draft model or head, to record its passes too")
    parser.add_argument("--context", type=int, default=128, help="tokens before the first step")
    parser.add_argument("--rounds", type=int, default=24, help="steps of each size")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each stream in a phase")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.record:
        facts = surroundings(datetime.now())
        found = record(
            options.model, options.draft, context=options.context, rounds=options.rounds, on=facts
        )
        options.file.write_text(json.dumps(found.as_dict()) + "\n", "utf-8")
    recording = read_recording(options.file)
    kinds = ["lookup", *(["model"] if recording.passes else [])]
    results = {
        f"{name} ({kind})": replayed(recording, phases, kind=kind, tokens_each=options.tokens)
        for kind in kinds
        for name, phases in PATTERNS.items()
    }
    if options.json:
        said = {
            name: {
                "fixed": {length: found.overall(length) for length in found.fixed},
                "auto": found.overall(None),
                "of_off": found.of_off,
                "of_best": found.of_best,
                "worst_of_off": found.worst_of_off,
            }
            for name, found in results.items()
        }
        sys.stdout.write(json.dumps(said) + "\n")
        return 0
    columns = [
        "pattern", "off, tokens/s", *(f"{length} drafts" for length in LENGTHS), "auto / off",
        "auto / best", "worst phase / off",
    ]  # fmt: skip
    lines = [row(name, found) for name, found in results.items()]
    least = [
        min(found.of_off for found in results.values()),
        min(found.of_best for found in results.values()),
        min(found.worst_of_off for found in results.values()),
    ]
    sys.stdout.write(
        f"{table(columns, lines)}\n\n{recording.model}: least {least[0]:.3f} of off, "
        f"{least[1]:.3f} of the best length, {least[2]:.3f} of off in a phase.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
