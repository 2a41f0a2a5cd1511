"""Answers of generateContent, whole or in pieces, as neutral events.

A reply without a stream is a stream of one piece: both are read by the same rules.

    text            grows the part of its kind that the piece before left open; texts that stand
                    side by side in one piece are parts of their own
    thought: true   Thinking; other media than text among thoughts stay Opaque
    functionCall    a ToolCall, whole; without an id it is "call_{responseId}_{n}", n counted
                    through the answer, so that ids of a long conversation differ; one whose
                    arguments are streamed is reported when it is whole
    inlineData      Media, as is fileData
    anything else   Opaque: executableCode, codeExecutionResult, Google's own tools

A thoughtSignature ends its part. One that comes with empty text signs the text before it (so it
ends a stream); where no text is open it is a Text of its own, empty, to go back where it stood.
logprobsResult is read in OpenAI's form: one entry for each token that was chosen.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.protocol.dialects.gemini.media import read_media
from headrace.protocol.dialects.gemini.reply.finish import (
    UNSPECIFIED,
    finish_of,
    is_failure,
    is_plain,
)
from headrace.protocol.dialects.gemini.reply.growing_choice import GrowingChoice, few
from headrace.protocol.dialects.gemini.reply.streamed_call import StreamedCall
from headrace.protocol.dialects.gemini.reply.usage import service_tier_of, usage_of
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.dialects.json_values import mapping, objects, text
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Opaque, Signature

# A larger logarithm is not a probability's; also excludes NaN and numbers too long for a float.
_MOST = 1e9


def logprobs_of(result: Any) -> list[dict[str, Any]] | None:
    """The `content` list; None if no tokens are reported."""
    told = mapping(result)
    chosen = objects(told.get("chosenCandidates"))
    others = objects(told.get("topCandidates"))
    entries = []
    for at, candidate in enumerate(chosen):
        top = objects(others[at].get("candidates")) if at < len(others) else []
        entries.append({**_entry(candidate), "top_logprobs": [_entry(other) for other in top]})
    return entries or None


def _entry(told: dict[str, Any]) -> dict[str, Any]:
    token = text(told.get("token"))
    value = told.get("logProbability")
    # A probability of one has the logarithm 0, which protocol buffers leave out.
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST
    return {
        "token": token,
        "logprob": value if known else 0.0,
        "bytes": list(token.encode("utf-8", errors="replace")),
    }


# More than any model gives: a stream of ever new choices must not fill the memory.
_MOST_CHOICES = 128
_MOST_ID_CHARACTERS = 28  # with what is put around it no more than OpenAI's 40

_OF_REPLY = frozenset(
    ("candidates", "usageMetadata", "modelVersion", "responseId", "createTime", "promptFeedback")
)
_OF_PART = frozenset(("text", "thought", "thoughtSignature", "partMetadata"))


class AnswerReader:
    """A reader of one answer's objects, in order."""

    def __init__(self) -> None:
        self._began: ReplyStart | None = None
        self._choices: dict[int, GrowingChoice] = {}
        self._usage: dict[str, Any] = {}
        self._feedback: dict[str, Any] = {}
        self._call_count = 0

    def take(self, piece: dict[str, Any], events: list[Event]) -> None:
        """Add to `events` what an object says.

        Raises DamagedReplyError for an invalid answer; the events before that are in `events`.
        """
        candidates = piece.get("candidates")
        if candidates is None:
            candidates = []
        if not isinstance(candidates, list):
            raise DamagedReplyError("candidates is not a list")
        self._count(mapping(piece.get("usageMetadata")), candidates)
        feedback = mapping(piece.get("promptFeedback"))
        if feedback:
            self._feedback = few({**self._feedback, **feedback})
        if self._began is None:
            self._began = self._beginning(piece)
            events.append(self._began)
        for position, candidate in enumerate(candidates):
            if not isinstance(candidate, dict):
                raise DamagedReplyError(f"candidates[{position}] is not an object")
            self._take_candidate(events, candidate, position)

    def finish(self, *, streamed: bool = False) -> list[Event]:
        """The last events: ReplyEnd, or ReplyFailure if it was cut or the model broke off."""
        failure = self._failure(streamed)
        if failure is not None:
            return [*self.broken_off(), ReplyFailure(failure)]
        events: list[Event] = []
        for _, choice in sorted(self._choices.items()):
            if not choice.cited:
                choice.cite(events, 0)
        events += self._closed()
        if not self._choices:
            self._choices[0] = GrowingChoice(0)
        for _, choice in sorted(self._choices.items()):
            if choice.streamed is not None:
                self._end_streamed(events, choice, choice.streamed)
            events += self._finished(choice)
        usage = usage_of(self._usage)
        if usage is not None:
            events.append(ReplyUsage(usage=usage, service_tier=service_tier_of(self._usage)))
        events.append(ReplyEnd())
        return events

    def broken_off(self) -> list[Event]:
        """The events before a ReplyFailure: open parts end, tokens so far are counted."""
        events = self._closed()
        usage = usage_of(self._usage)
        if usage is not None:
            events.append(ReplyUsage(usage=usage, service_tier=service_tier_of(self._usage)))
        return events

    def _beginning(self, piece: dict[str, Any]) -> ReplyStart:
        return ReplyStart(
            id=text(piece.get("responseId")),
            model=text(piece.get("modelVersion")),
            created_s=_unix_s(text(piece.get("createTime"))),
            usage=usage_of(self._usage),
            service_tier=service_tier_of(self._usage),
            extra={key: value for key, value in piece.items() if key not in _OF_REPLY},
        )

    def _count(self, told: dict[str, Any], candidates: list[Any]) -> None:
        """Counts are of all so far; a piece in the middle may leave some of them out."""
        if any(mapping(candidate).get("finishReason") for candidate in candidates) and told:
            self._usage = dict(told)
        else:
            self._usage = few({**self._usage, **told})

    def _take_candidate(
        self, events: list[Event], candidate: dict[str, Any], position: int
    ) -> None:
        index = candidate.get("index", position)
        if not isinstance(index, int) or not 0 <= index < _MOST_CHOICES:
            raise DamagedReplyError(f"candidates[{position}].index is not the number of a choice")
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = GrowingChoice(index)
        content = candidate.get("content") or {}
        parts = (content.get("parts") or []) if isinstance(content, dict) else None
        if not isinstance(parts, list):
            raise DamagedReplyError(f"candidates[{position}].content.parts is not a list")
        start = len(events)
        for at, part in enumerate(parts):
            if not isinstance(part, dict):
                raise DamagedReplyError(f"candidates[{position}].content.parts[{at}] is not a part")
            self._take_part(events, choice, part, first=at == 0)
        reason = text(candidate.get("finishReason"))
        if reason and (reason != UNSPECIFIED or not choice.reason):
            choice.reason = reason
        choice.keep(candidate)
        if reason and not choice.cited:
            choice.cite(events, start)
        if "logprobsResult" in candidate:
            logprobs = logprobs_of(candidate["logprobsResult"])
            if logprobs is not None and not _put_logprobs(events, start, logprobs):
                choice.extra["logprobsResult"] = candidate["logprobsResult"]

    def _take_part(
        self, events: list[Event], choice: GrowingChoice, part: dict[str, Any], *, first: bool
    ) -> None:
        value = text(part.get("thoughtSignature"))
        signature = Signature(DIALECT, value) if value else None
        if isinstance(part.get("text"), str):
            kind: Kind = "thinking" if part.get("thought") is True else "text"
            choice.take_text(events, kind, part["text"], signature, joins=first)
            return
        if not (part.keys() - _OF_PART) and signature is None:
            return
        if choice.open is not None:
            events.append(choice.ended())
        if isinstance(part.get("functionCall"), dict):
            self._take_call(events, choice, part["functionCall"], signature)
            return
        choice.part += 1
        thought = part.get("thought") is True
        if not thought and ("inlineData" in part or "fileData" in part):
            found = CompletePart(choice=choice.index, part=choice.part, value=read_media(part))
        else:
            found = CompletePart(choice=choice.index, part=choice.part, value=Opaque(DIALECT, part))
        events.append(found)

    def _take_call(
        self,
        events: list[Event],
        choice: GrowingChoice,
        call: dict[str, Any],
        signature: Signature | None,
    ) -> None:
        name, arguments = text(call.get("name")), call.get("args")
        if choice.streamed is None and name and ("partialArgs" in call or call.get("willContinue")):
            choice.streamed = StreamedCall(name, text(call.get("id")))
        if choice.streamed is not None:
            choice.streamed.signature = signature or choice.streamed.signature
            if choice.streamed.take(call):
                self._end_streamed(events, choice, choice.streamed)
            return
        if not name or not (arguments is None or isinstance(arguments, dict)):
            raise DamagedReplyError(
                "a functionCall has no name, or its arguments are not an object"
            )
        written = msgspec.json.encode(arguments or {}).decode()
        self._emit_call(events, choice, name, text(call.get("id")), written, signature)

    def _end_streamed(self, events: list[Event], choice: GrowingChoice, call: StreamedCall) -> None:
        choice.streamed = None
        self._emit_call(events, choice, call.name, call.id, call.arguments, call.signature)

    def _emit_call(
        self,
        events: list[Event],
        choice: GrowingChoice,
        name: str,
        call_id: str,
        arguments: str,
        signature: Signature | None,
    ) -> None:
        if choice.open is not None:
            events.append(choice.ended())
        call_id = call_id or self._new_id()
        choice.calls = True
        self._call_count += 1
        events.append(choice.began("tool_call", call_id, name))
        events.append(choice.grew(arguments))
        events.append(choice.ended(signature))

    def _new_id(self) -> str:
        answer = self._began.id if self._began is not None else ""
        plain = answer.isascii() and answer.replace("-", "").replace("_", "").isalnum()
        if plain and len(answer) <= _MOST_ID_CHARACTERS:
            return f"call_{answer}_{self._call_count}"
        return f"call_{self._call_count}"

    def _closed(self) -> list[Event]:
        return [
            choice.ended() for _, choice in sorted(self._choices.items()) if choice.open is not None
        ]

    def _finished(self, choice: GrowingChoice) -> list[Event]:
        extra = choice.extra
        if self._feedback:
            extra = {**extra, "promptFeedback": self._feedback}
        if not choice.reason:
            if not self._blocked():
                return []
            return [ChoiceEnd(choice=choice.index, reason="content_filter", extra=extra)]
        if not is_plain(choice.reason):
            extra = {**extra, "finishReason": choice.reason}
        reason = finish_of(choice.reason, calls=choice.calls)
        return [ChoiceEnd(choice=choice.index, reason=reason, extra=extra)]

    def _blocked(self) -> bool:
        return bool(text(self._feedback.get("blockReason")))

    def _failure(self, streamed: bool) -> Failure | None:
        choices = list(self._choices.values())
        if not choices and not self._blocked():
            if streamed and self._began is None:
                return Failure(kind="network", message="the stream ended before it began")
            return Failure(kind="damaged", message="the reply holds no candidates")
        if streamed and not self._blocked() and not all(other.reason for other in choices):
            return Failure(kind="network", message="the stream ended before the answer did")
        if any(choice.is_within_call for choice in choices):
            return Failure(kind="damaged", message="the answer ended within a functionCall")
        if choices and all(
            is_failure(choice.reason, content=choice.part >= 0) for choice in choices
        ):
            reason = choices[0].reason
            if not reason:
                return None
            told = text(choices[0].extra.get("finishMessage"))
            message = f"the model broke off with {reason}" + (f": {told}" if told else "")
            return Failure(kind="server", message=message, code=reason)
        return None


def _put_logprobs(events: list[Event], start: int, logprobs: list[dict[str, Any]]) -> bool:
    """Give them to the first text of this piece, or to what else grew in it, if anything did."""
    kinds = {
        (event.choice, event.part): event.kind for event in events if isinstance(event, PartStart)
    }
    grown = [at for at in range(start, len(events)) if isinstance(events[at], PartDelta)]
    if not grown:
        return False
    texts = [at for at in grown if kinds.get(_place(events[at]), "text") == "text"]
    at = texts[0] if texts else grown[-1]
    events[at] = msgspec.structs.replace(events[at], logprobs=logprobs)
    return True


def _place(event: Event) -> tuple[int, int]:
    assert isinstance(event, PartDelta)
    return event.choice, event.part


def _unix_s(written: str) -> int | None:
    """Whole seconds of a time such as 2026-02-15T07:50:39.884152Z."""
    try:
        told = datetime.fromisoformat(written)
        return int((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None
