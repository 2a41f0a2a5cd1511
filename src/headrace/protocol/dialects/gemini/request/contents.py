"""The turns of a conversation as Gemini's `contents`.

Roles are "user" and "model"; turns of one role that follow each other become one, but the results
of functions stand in a content of their own, in the order of their calls: Gemini wants as many as
there were calls, and older models match them by order. Pictures that a function gave go into its
functionResponse for Gemini 3 and later, else into the user's turn after it.

A signature of Gemini's goes back in its part. Thoughts without one, and thoughts of others, are
left out. Gemini 3 refuses a turn whose first functionCall has no signature; one that another model
made has none, so it gets the words that Google has documented for that case: in every turn of the
model, since which turns are checked is Google's affair, and on the first call alone, since calls
side by side have one signature (ai.google.dev/gemini-api/docs/thought-signatures).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.dialects.gemini.media import write_media
from headrace.protocol.dialects.gemini.place import Place
from headrace.protocol.dialects.gemini.request.model_name import (
    takes_media_in_results,
    validates_signatures,
)
from headrace.protocol.dialects.gemini.values import DIALECT
from headrace.protocol.neutral.call import ChatCall, Message, Role
from headrace.protocol.neutral.losses import opaque_loss
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

NO_SIGNATURE = "skip_thought_signature_validator"

# Of a functionResponse's parts; others, and addresses, go beside it.
_IN_RESULTS = ("image/", "application/pdf", "text/plain")
_UNKNOWN_CALL = 2**31


class _Turn(NamedTuple):
    role: str
    results: bool
    parts: list[dict[str, Any]]


class ContentsWriter:
    """A writer of one call's messages; `turns` is what they became, `dropped` what was not said."""

    def __init__(self, model: str, place: Place) -> None:
        self._model = model
        self._place = place
        self._turns: list[_Turn] = []
        self._results: list[tuple[int, dict[str, Any]]] = []
        self._beside: list[dict[str, Any]] = []
        self._calls: dict[str, tuple[int, str]] = {}
        self._call_count = 0
        self.dropped: list[str] = []

    def contents(self, call: ChatCall) -> list[dict[str, Any]]:
        """The `contents` of a request; raises RequestError for what cannot be said."""
        for message in call.messages:
            self._take(message)
        self._close_results()
        if not self._turns:
            if not call.instructions:
                raise RequestError("messages: there is no message to answer", param="messages")
            # Gemini answers to a user: to one who said nothing, if there are instructions alone.
            self._turns.append(_Turn("user", False, [{"text": ""}]))
        if validates_signatures(self._model):
            self._sign()
        return [{"role": turn.role, "parts": turn.parts} for turn in self._turns]

    def _take(self, message: Message) -> None:
        if message.name is not None:
            self.dropped.append("messages.name")
        self.dropped += [
            "messages.role" if key == "role" else f"messages.extra.{key}" for key in message.extra
        ]
        role = "model" if message.role == "assistant" else "user"
        parts: list[dict[str, Any]] = []
        empty = False
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._take_result(part)
                continue
            written = self._part(part, message.role)
            if written is not None:
                parts.append(written)
            empty = empty or isinstance(part, Text)
        if not parts and empty:
            parts = [{"text": ""}]
        if parts:
            self._close_results()
            self._add(role, False, parts)

    def _part(self, part: Part, role: Role) -> dict[str, Any] | None:
        if isinstance(part, Text):
            self._note_dropped(part)
            return _signed({"text": part.text}, part.signature) if _says(part) else None
        if isinstance(part, Refusal):
            return {"text": part.text}
        if isinstance(part, Thinking):
            if part.signature is None or part.signature.origin != DIALECT:
                return None
            return _signed({"text": part.text, "thought": True}, part.signature)
        if isinstance(part, ToolCall):
            return self._call(part)
        if isinstance(part, Media):
            self._note_dropped(part)
            written, dropped = write_media(part, self._place)
            self.dropped += dropped
            return written
        if isinstance(part, Opaque) and part.dialect != DIALECT:
            self.dropped.append(opaque_loss(part, role))
            return None
        return dict(part.value) if isinstance(part, Opaque) else None

    def _call(self, part: ToolCall) -> dict[str, Any]:
        self._note_dropped(part)
        self._calls[part.id] = (self._call_count, part.name)
        self._call_count += 1
        made: dict[str, Any] = {"name": part.name, "args": _arguments(part.arguments)}
        if self._place.call_ids and part.id:
            made["id"] = part.id
        return _signed({"functionCall": made}, part.signature)

    def _take_result(self, part: ToolResult) -> None:
        self._note_dropped(part)
        order, name = self._calls.get(part.call_id, (_UNKNOWN_CALL, part.name))
        if not name:
            raise RequestError(
                f"messages: a tool's result is for the call {shown(part.call_id)}, which no "
                "earlier message made; Gemini needs the function's name, so send the call "
                "before its result",
                param="messages",
            )
        words = [inner.text for inner in part.content if isinstance(inner, Text)]
        made: dict[str, Any] = {"name": name, "response": _response(words, part.is_error)}
        if self._place.call_ids and part.call_id:
            made["id"] = part.call_id
        within: list[dict[str, Any]] = []
        for inner in part.content:
            self._note_dropped(inner)
            if not isinstance(inner, Media):
                continue
            written, dropped = write_media(inner, self._place)
            self.dropped += dropped
            written.pop("thoughtSignature", None)  # not an answer of the model
            held = written.get("inlineData")
            fits = held is not None and held["mimeType"].startswith(_IN_RESULTS)
            inside = fits and takes_media_in_results(self._model)
            (within if inside else self._beside).append(written)
        if within:
            made["parts"] = within
        self._results.append((order, {"functionResponse": made}))

    def _close_results(self) -> None:
        """Put what came back from functions in its order, and pictures after it."""
        if not self._results:
            return
        ordered = sorted(self._results, key=lambda result: result[0])
        self._add("user", True, [part for _, part in ordered])
        self._results = []
        if self._beside:
            self._add("user", False, self._beside)
            self._beside = []

    def _add(self, role: str, results: bool, parts: list[dict[str, Any]]) -> None:
        last = self._turns[-1] if self._turns else None
        if last is not None and last.role == role and last.results == results:
            last.parts.extend(parts)
        else:
            self._turns.append(_Turn(role, results, parts))

    def _sign(self) -> None:
        for turn in self._turns:
            if turn.role != "model":
                continue
            first = next((part for part in turn.parts if "functionCall" in part), None)
            if first is not None:
                first.setdefault("thoughtSignature", NO_SIGNATURE)

    def _note_dropped(self, part: Text | Media | ToolCall | ToolResult) -> None:
        if part.cache is not None:
            self.dropped.append("cache")
        if not isinstance(part, ToolResult):
            self.dropped += [f"messages.extra.{key}" for key in part.extra]


def _says(part: Text) -> bool:
    return bool(part.text) or (part.signature is not None and part.signature.origin == DIALECT)


def _signed(part: dict[str, Any], signature: Signature | None) -> dict[str, Any]:
    if signature is not None and signature.origin == DIALECT:
        part["thoughtSignature"] = signature.value
    return part


def _arguments(written: str) -> Any:
    """An object; what a model wrote that is none becomes one with that text in it."""
    if not written.strip():
        return {}
    try:
        msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        return msgspec.Raw(written.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {"arguments": written}


def _response(words: list[str], is_error: bool) -> dict[str, Any]:
    """An object: the result's own, if its text is one; else its text under "result" or "error"."""
    said: Any = words[0] if len(words) == 1 else words or ""
    if is_error:
        return {"error": said}
    if isinstance(said, str) and said.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(said, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return {"result": said}
