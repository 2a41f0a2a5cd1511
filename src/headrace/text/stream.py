"""Ids to the text a client gets: detokenizer and stop strings of one choice of one request.

Several ids may come at once (speculation). When one of them completes a stop string the ids after
it were never generated as far as the client is concerned: `num_tokens` says where to cut usage and
log probabilities.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.text.detokenizer import REPLACEMENT, Detokenizer
from headrace.text.stop import StopStrings

if TYPE_CHECKING:
    from headrace.text.tokenizer import Tokenizer


class TextDelta(NamedTuple):
    """The text that a batch of ids added."""

    text: str
    """Released now."""
    num_tokens: int = 0
    """How many of the ids count, the one that completed a stop string included."""
    stop: str | None = None
    """The stop string that ended the text."""
    text_offsets: tuple[int, ...] = ()
    """For each counted id, where its text begins, in characters of the generated text; ids within
    one character share it. One after a broken character begins behind it."""


class TextStream:
    """Text of one choice. `feed` until it tells a stop, then nothing; else `finish` at the end.

    prompt_ids: what the ids continue. kept_special_ids: are not skipped. text_offset: added to
    every text offset (the length of the prompt's text where it is echoed). min_tokens: a stop
    string that one of the first so many ids completes is text like any other (as in vLLM); one that
    a later id completes may begin there.
    Raises RequestError for an empty stop string, and for any where the model has no tokenizer.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        prompt_ids: Sequence[int] = (),
        stops: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        kept_special_ids: Collection[int] = (),
        text_offset: int = 0,
        min_tokens: int = 0,
    ) -> None:
        if stops and not tokenizer.has_text:
            from headrace.text.no_tokenizer import no_tokenizer

            raise no_tokenizer("no text ends an answer; stop_token_ids does", "stop")
        self._detokenizer = Detokenizer(
            tokenizer,
            prompt_ids=prompt_ids,
            skip_special_tokens=skip_special_tokens,
            kept_special_ids=kept_special_ids,
        )
        self._stops = StopStrings(stops, include_stop=include_stop) if stops else None
        self._keep_end = include_stop
        self._offset = text_offset
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._stopped = False

    def take(
        self, ids: Sequence[int], finish_reason: str | None, *, ends_with_text: bool = False
    ) -> TextDelta:
        """Take what the engine gave at one time, and with its last word all that is held.

        finish_reason: the engine's, None while it goes on. With "stop" the last id is the one that
        ended the text, so its own text is left out (unless stops are to be included, or
        ends_with_text: the text was complete with it). A `stop` in the result ended the text
        whatever the engine says; the reason is "stop" then.
        """
        hide_last = finish_reason == "stop" and not (self._keep_end or ends_with_text)
        delta = self.feed(ids, hide_last=hide_last)
        if finish_reason is None or delta.stop is not None:
            return delta
        rest = self.finish()
        return delta._replace(text=delta.text + rest.text, stop=rest.stop)

    def feed(self, ids: Sequence[int], *, hide_last: bool = False) -> TextDelta:
        """Take generated ids in order.

        hide_last: the last id ended the text (an end id or one of stop_token_ids): it counts and
        has an offset, and its text is left out. After a stop no id counts.
        """
        if self._stopped:
            return TextDelta("")
        pieces: list[str] = []
        offsets: list[int] = []
        detokenizer = self._detokenizer
        last = len(ids) - 1
        for index, token_id in enumerate(ids):
            offsets.append(self._offset)
            self._num_tokens += 1
            if hide_last and index == last:
                break
            text = detokenizer.feed((token_id,))
            if text:
                if text[0] == REPLACEMENT and detokenizer.breaks_off(token_id, text):
                    offsets[-1] += 1
                self._offset += len(text)
                if self._stops is None:
                    pieces.append(text)
                    continue
                released, stop = self._stops.feed(text, search=self._searches)
                pieces.append(released)
                if stop is not None:
                    self._stopped = True
                    return TextDelta("".join(pieces), index + 1, stop, tuple(offsets))
        return TextDelta("".join(pieces), len(ids), None, tuple(offsets))

    def finish(self) -> TextDelta:
        """The text still held, when generation ended for another reason than a stop string."""
        if self._stopped:
            return TextDelta("")
        self._stopped = True
        text = self._detokenizer.flush()
        if self._stops is None:
            return TextDelta(text)
        released, stop = self._stops.feed(text, search=self._searches)
        return TextDelta(released + self._stops.flush(), 0, stop)

    @property
    def _searches(self) -> bool:
        """Whether the id taken last may complete a stop string."""
        return self._num_tokens > self._min_tokens
