"""One choice of a streamed answer while it grows: deltas in, parts of the neutral form out.

Servers mix what the neutral grammar keeps apart: thoughts, text and tool calls in any order, the
end said twice or followed by more. Text that comes while tool calls are open waits for their end,
since a call may still grow.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from headrace.protocol.dialects.openai_chat.reply.citations import cited_pages, read_annotations
from headrace.protocol.dialects.openai_chat.reply.finish import finish_if_silent, read_finish
from headrace.protocol.dialects.openai_chat.reply.growing_calls import GrowingCalls, Numbers
from headrace.protocol.dialects.openai_chat.reply.read_reply import (
    CHOICE,
    MESSAGE,
    read_images,
    read_reply_content,
    read_sound,
)
from headrace.protocol.dialects.openai_chat.thoughts import (
    google_signature,
    is_call_signature,
    read_detail,
    write_call_signature,
)
from headrace.protocol.dialects.openai_chat.values import left_over, mapping, objects, text
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
)
from headrace.protocol.neutral.failure import FailureKind
from headrace.protocol.neutral.part import Part, Signature, Text, Thinking
from headrace.protocol.neutral.reply import Finish

_NO_THOUGHT = Thinking(text="")
_PLAIN = frozenset({"role", "content"})

# Of a text whose marks are looked for: more is not kept.
_MOST_CITED_CHARACTERS = 2**20


class GrowingChoice:
    """A choice assembled from deltas: give them to `take`, then call `finish`. failed: the server
    gave up."""

    def __init__(self, index: int, reply_id: str) -> None:
        self._index = index
        self._numbers = Numbers()
        self._calls = GrowingCalls(index, reply_id, self._numbers)
        self._open: tuple[int, Kind] | None = None
        self._thought_key: tuple[Any, ...] | None = None
        self._thought_signature: Signature | None = None
        self._google: Signature | None = None
        self._hidden: dict[str, Signature] = {}
        self._waiting: list[tuple[Kind | None, Any, Any]] = []
        self._logprobs: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []
        self.pages: tuple[Citation, ...] = ()
        """Pages that the answer lists for all of its text."""
        self._has_cited = False
        self._words: list[str] = []
        self._words_characters = 0
        self._audio: dict[str, Any] = {}
        self._audio_pieces: list[str] = []
        self._spoken: list[str] = []
        self._message: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}
        self._reason: Finish | None = None
        self._listed = 0
        self.failed: FailureKind | None = None

    @property
    def finished(self) -> bool:
        """Whether the server said why it ended."""
        return self._reason is not None

    @property
    def has_sound(self) -> bool:
        """Whether there was any audio, which is reported at the end."""
        return any(self._audio_pieces) or any(self._spoken)

    @property
    def has_data(self) -> bool:
        """Whether the deltas had more than a role and the reported parts."""
        return bool(
            self._calls.open
            or self._calls.any
            or self._annotations
            or self._hidden
            or self._message
            or self.has_sound
        )

    @property
    def kept(self) -> int:
        """The number of things that are kept for the end."""
        return (
            self._calls.kept
            + self._listed
            + len(self._waiting)
            + len(self._logprobs)
            + len(self._annotations)
            + len(self._audio_pieces)
            + len(self._spoken)
            + len(self._hidden)
            + len(self._message)
            + len(self._extra)
        )

    def take(self, choice: dict[str, Any], events: list[Event]) -> None:
        """A choice of a chunk. Raises DamagedStreamError."""
        delta = choice.get("delta")
        if (
            isinstance(delta, dict)
            and _PLAIN.issuperset(delta)
            and isinstance(delta.get("content"), str)
            and not choice.get("logprobs")
            and not choice.get("finish_reason")
            and choice.keys() <= CHOICE
        ):
            self._say("text", delta["content"], events)  # nearly all of them
            return
        if delta is None and self._numbers.next == 0:
            delta = choice.get("message")  # all in one chunk
        delta = mapping(delta)
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            self._logprobs += objects(logprobs.get("content")) or objects(logprobs.get("refusal"))
        self._take_thoughts(delta, events)
        content = delta.get("content")
        if isinstance(content, str):
            self._say("text", content, events)
        elif content:
            for part in read_reply_content(content):
                if isinstance(part, Text):
                    self._say("text", part.text, events)
                else:
                    self._complete(part, events)
        self._say("refusal", text(delta.get("refusal")), events)
        self._take_calls(delta, events)
        for image in read_images(delta.get("images")):
            self._complete(image, events)
        audio = delta.get("audio")
        if isinstance(audio, dict):
            self._take_audio(audio)
        annotations = objects(delta.get("annotations"))
        self._annotations += annotations
        if not delta.keys() <= MESSAGE:
            self._keep(left_over(delta, MESSAGE))
        if not choice.keys() <= CHOICE:
            self._extra |= left_over(choice, CHOICE)
        self._take_finish(choice.get("finish_reason"))

    def _take_finish(self, word: Any) -> None:
        if not word:
            return
        finish = read_finish(word, has_tool_calls=self._calls.any)
        self._reason = self._reason or finish.reason
        self.failed = self.failed or finish.failed
        self._extra |= finish.extra

    def _take_calls(self, delta: dict[str, Any], events: list[Event]) -> None:
        fragments = objects(delta.get("tool_calls"))
        legacy = delta.get("function_call")
        if not fragments and isinstance(legacy, dict):
            fragments = [{"index": 0, "function": legacy}]
        for fragment in fragments:
            if "function" not in fragment and isinstance(fragment.get("custom"), dict):
                self._calls.take_custom(fragment)
            elif self._calls.is_piece(fragment):
                if self._open is not None:
                    self._close(events)
                self._calls.take(fragment, self._take_logprobs(), events)

    def _keep(self, fields: dict[str, Any]) -> None:
        google = google_signature(fields)
        if google is not None:
            self._google = google
            del fields["extra_content"]
        for name, value in fields.items():
            before = self._message.get(name)
            if isinstance(before, list) and isinstance(value, list):
                before.extend(value)
                self._listed += len(value)
            else:
                self._message[name] = value

    def _take_thoughts(self, delta: dict[str, Any], events: list[Event]) -> None:
        told = False
        for detail in objects(delta.get("reasoning_details")):
            one = read_detail(detail)
            if one is not None:
                told = told or bool(one.text)
                self._take_detail(detail, one, events)
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning"))
        if thought and not told:
            self._think(thought, (None, _NO_THOUGHT), events)

    def _take_detail(self, detail: dict[str, Any], one: Thinking, events: list[Event]) -> None:
        if one.redacted:
            if is_call_signature(one) and one.id is not None and one.signature is not None:
                self._hidden[one.id] = one.signature
            else:
                self._complete(one, events)
            return
        thinking = self._open is not None and self._open[1] == "thinking"
        if one.text or not thinking:
            self._think(one.text, ((detail.get("type"), detail.get("index")), one), events)
        if one.signature is not None:
            self._thought_signature = one.signature
            if self._open is not None and self._open[1] == "thinking":
                self._close(events)

    def _think(
        self, piece: str, what: tuple[tuple[Any, ...] | None, Thinking], events: list[Event]
    ) -> None:
        if self._calls.open:
            self._waiting.append(("thinking", piece, what))
            return
        key, one = what
        thinking = self._open is not None and self._open[1] == "thinking"
        if not thinking or self._thought_key != key:
            self._begin("thinking", events, one)
            self._thought_key = key
        self._grow(piece, events)

    def _say(self, kind: Kind, piece: str, events: list[Event]) -> None:
        if not piece:
            return
        if self._calls.open:
            self._waiting.append((kind, piece, None))
            return
        if self._open is None or self._open[1] != kind:
            self._begin(kind, events)
        self._grow(piece, events)

    def _complete(self, value: Part, events: list[Event]) -> None:
        if self._calls.open:
            self._waiting.append((None, value, None))
            return
        self._close(events)
        events.append(CompletePart(choice=self._index, part=self._numbers.take(), value=value))

    def _begin(self, kind: Kind, events: list[Event], one: Thinking = _NO_THOUGHT) -> None:
        self._close(events)
        part = self._numbers.take()
        events.append(
            PartStart(
                choice=self._index, part=part, kind=kind, id=one.id or "", summary=one.summary
            )
        )
        self._open = (part, kind)

    def _take_logprobs(self) -> list[dict[str, Any]] | None:
        if not self._logprobs:
            return None
        logprobs, self._logprobs = self._logprobs, []
        return logprobs

    def _grow(
        self,
        piece: str,
        events: list[Event],
        extra: dict[str, Any] | None = None,
        citations: tuple[Citation, ...] = (),
    ) -> None:
        if self._open is not None:
            if self.pages and self._open[1] == "text":
                self._words_characters += len(piece)
                if self._words_characters <= _MOST_CITED_CHARACTERS:
                    self._words.append(piece)
            events.append(
                PartDelta(
                    choice=self._index,
                    part=self._open[0],
                    text=piece,
                    logprobs=self._take_logprobs(),
                    citations=citations,
                    extra=extra or {},
                )
            )

    def _close(self, events: list[Event]) -> None:
        """The open part ends, or all open calls do."""
        if self._open is not None:
            part, kind = self._open
            signature = None
            if kind == "thinking":
                signature, self._thought_signature = self._thought_signature, None
            elif kind == "text":
                signature, self._google = self._google, None
            if kind == "text" and (self._annotations or self.pages):
                self._cite(events)
            elif self._logprobs:
                self._grow("", events)
            self._open = None
            events.append(PartEnd(choice=self._index, part=part, signature=signature))
        if self._calls.open:
            self._google = self._calls.end(
                self._hidden, self._google, self._take_logprobs(), events
            )

    def _cite(self, events: list[Event]) -> None:
        """The sources of the open text, before its end."""
        words, self._words, self._words_characters = "".join(self._words), [], 0
        notes, self._annotations = self._annotations, []
        citations = read_annotations(notes)
        if not citations:
            citations = cited_pages(words, self.pages, marks_only=self._has_cited)
            self._has_cited = True
        self._grow("", events, {"annotations": notes} if notes else None, citations)
        self._words = []

    def _take_audio(self, audio: dict[str, Any]) -> None:
        for name, value in audio.items():
            if name == "data":
                self._audio_pieces.append(text(value))
            elif name == "transcript":
                self._spoken.append(text(value))
            else:
                self._audio[name] = value

    def finish(self, events: list[Event]) -> ChoiceEnd:
        """End all open parts, and return the choice's end, to be reported when all choices have
        ended."""
        self._close(events)
        waiting, self._waiting = self._waiting, []
        for kind, value, what in waiting:
            if kind is None:
                self._complete(value, events)
            elif kind == "thinking":
                self._think(value, what, events)
            else:
                self._say(kind, value, events)
        self._close(events)
        for call_id, signature in self._hidden.items():
            hidden = Thinking(text="", signature=signature, redacted=True, id=call_id)
            self._complete(hidden, events)
        for custom in self._calls.customs:
            self._complete(custom, events)
        if self._spoken:
            self._audio["transcript"] = "".join(self._spoken)
        for sound in read_sound({**self._audio, "data": _joined(self._audio_pieces)}):
            self._complete(sound, events)
        if self._annotations:
            self._message["annotations"] = self._annotations
        if self._google is not None:
            self._message["extra_content"] = write_call_signature(self._google)
        if self._message:
            self._extra["message"] = self._message
        stop = self._extra.get("stop_reason")
        stop_sequence = self._extra.pop("stop_reason") if isinstance(stop, str) else None
        has_calls = self._calls.any
        reason = self._reason or finish_if_silent(has_calls)
        if reason == "stop" and has_calls:  # said before the calls came
            reason = "tool_calls"
            self._extra["finish_reason"] = "stop"
        return ChoiceEnd(
            choice=self._index, reason=reason, stop_sequence=stop_sequence, extra=self._extra
        )


def _joined(pieces: list[str]) -> str:
    """Base64 whose pieces were each encoded alone."""
    if not any(piece.endswith("=") for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return base64.b64encode(b"".join(base64.b64decode(encoded) for encoded in pieces)).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
