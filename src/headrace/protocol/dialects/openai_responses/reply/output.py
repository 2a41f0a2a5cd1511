"""The items of a response's output, grown from neutral events, and the events of their growth.

One machine makes both the events of a stream and the items of a whole response, so that they agree.
An item is open while it grows: texts one after another share a message, and texts of thoughts with
one id a reasoning item.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.openai_responses.reply.calls_output import CallsOutput
from headrace.protocol.dialects.openai_responses.reply.logprobs import delta_logprob, part_logprob
from headrace.protocol.dialects.openai_responses.reply.output_items import OpenItem, OutputItems
from headrace.protocol.dialects.openai_responses.sealed import seal, seal_text
from headrace.protocol.dialects.openai_responses.text_parts import written_text
from headrace.protocol.dialects.openai_responses.values import DIALECT
from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.event import CompletePart, Kind, PartDelta, PartEnd, PartStart
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.neutral.reply import Finish

Events = list[dict[str, Any]]


class _Words:
    """A text, refusal or thought while it grows.

    place: the location that its events name, set once the client knows of it.
    """

    def __init__(self, kind: Kind, id: str, summary: bool, extra: dict[str, Any]) -> None:
        self.kind = kind
        self.id = id
        self.summary = summary
        self.extra = dict(extra)
        self.citations: tuple[Citation, ...] = ()
        self.pieces: list[str] = []
        self.logprobs: list[dict[str, Any]] = []
        self.place: dict[str, Any] | None = None


class Output:
    """The output items of one choice, made from its events. own: the provider speaks this dialect,
    so its ids are kept."""

    def __init__(self, response: str, *, own: bool) -> None:
        self._items = OutputItems(response, own=own)
        self._calls = CallsOutput(self._items)
        self._item: OpenItem | None = None
        self._words: _Words | None = None

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items so far, by output_index."""
        return self._items.values

    def take(self, event: PartStart | PartDelta | PartEnd | CompletePart) -> Events:
        """The events for a streaming client, without sequence numbers."""
        if isinstance(event, PartDelta):
            self._grew(event)
        elif isinstance(event, PartStart):
            self._began(event)
        elif isinstance(event, PartEnd):
            self._ended(event)
        else:
            self._complete(event.value)
        return self._items.take_events()

    def finish(self, reason: Finish | None) -> Events:
        """After the last part. A message or a thought that was cut off is incomplete."""
        cut = reason in ("length", "content_filter")
        self._close("incomplete" if cut else "completed")
        return self._items.take_events()

    def cut(self) -> None:
        """The stream broke: what is open stays as far as it came."""
        if self._words is not None and self._words.place is not None:
            self._words_ended(self._words, None)
        self._calls.cut()
        self._close("incomplete")

    def _began(self, event: PartStart) -> None:
        if event.kind == "tool_call":
            self._close()
            self._calls.began(event)
        else:
            self._words = _Words(event.kind, event.id, event.summary, event.extra)

    def _grew(self, event: PartDelta) -> None:
        words = self._words
        if event.part in self._calls:
            self._calls.grew(event.part, event.text)
        elif words is not None:
            words.extra |= event.extra
            words.citations += event.citations
            if event.text or event.logprobs:
                self._words_grew(words, event)

    def _ended(self, event: PartEnd) -> None:
        words, self._words = self._words, None
        if event.part in self._calls:
            self._calls.ended(event.part, event.signature)
        elif words is not None:
            self._words_ended(words, event.signature)

    def _words_grew(self, words: _Words, event: PartDelta) -> None:
        place = self._open(words)
        words.pieces.append(event.text)
        if words.kind == "text":
            logprobs = event.logprobs or []
            words.logprobs += logprobs
            deltas = [delta_logprob(logprob) for logprob in logprobs]
            self._items.emit(
                "response.output_text.delta", **place, delta=event.text, logprobs=deltas
            )
            return
        kind = "refusal"
        if words.kind == "thinking":
            kind = "reasoning_summary_text" if words.summary else "reasoning_text"
        self._items.emit(f"response.{kind}.delta", **place, delta=event.text)

    def _words_ended(self, words: _Words, signature: Signature | None) -> None:
        place = self._open(words)
        text = "".join(words.pieces)
        if words.kind == "text":
            self._text_ended(words, place, text)
            if signature is not None:
                self._close()
                self._items.add_sealed(seal_text(signature))
            return
        if words.kind == "refusal":
            self._items.emit("response.refusal.done", **place, refusal=text)
            self._part_done(place, {"type": "refusal", "refusal": text}, "content")
            return
        if words.summary:
            self._items.emit("response.reasoning_summary_text.done", **place, text=text)
            self._part_done(place, {"type": "summary_text", "text": text}, "summary")
        else:
            self._items.emit("response.reasoning_text.done", **place, text=text)
            self._part_done(place, {"type": "reasoning_text", "text": text}, "content")
        if signature is not None:
            self._sign(signature)

    def _text_ended(self, words: _Words, place: dict[str, Any], text: str) -> None:
        part = written_text(text, words.extra, words.citations, own=self._items.own)
        part["logprobs"] = [part_logprob(logprob) for logprob in words.logprobs]
        for index, annotation in enumerate(part["annotations"]):
            self._items.emit(
                "response.output_text.annotation.added",
                **place,
                annotation_index=index,
                annotation=annotation,
            )
        logprobs = [delta_logprob(entry) for entry in words.logprobs]
        self._items.emit("response.output_text.done", **place, text=text, logprobs=logprobs)
        self._part_done(place, part, "content")

    def _part_done(self, place: dict[str, Any], part: dict[str, Any], name: str) -> None:
        assert self._item is not None
        self._item.value.setdefault(name, []).append(part)
        kind = "reasoning_summary_part" if name == "summary" else "content_part"
        self._items.emit(f"response.{kind}.done", **place, part=part)

    def _sign(self, signature: Signature) -> None:
        """The open reasoning item, which nothing joins any more."""
        assert self._item is not None
        self._item.value["encrypted_content"] = seal(signature)
        self._item.key = None

    def _open(self, words: _Words) -> dict[str, Any]:
        """Tells once of where the words are: in the open item, or in one that is opened."""
        if words.place is not None:
            return words.place
        if words.kind == "thinking":
            item = self._reasoning(words.id)
        else:
            item = self._message(words.extra, joins=words.kind == "refusal")
        place: dict[str, Any] = {"item_id": item.value["id"], "output_index": item.index}
        name = "summary" if words.summary else "content"
        place[f"{name}_index"] = len(item.value.get(name, ()))
        words.place = place
        part: dict[str, Any]
        if words.kind == "text":
            part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        elif words.kind == "refusal":
            part = {"type": "refusal", "refusal": ""}
        elif words.summary:
            part = {"type": "summary_text", "text": ""}
        else:
            part = {"type": "reasoning_text", "text": ""}
        kind = "reasoning_summary_part" if words.summary else "content_part"
        self._items.emit(f"response.{kind}.added", **place, part=part)
        return place

    def _reasoning(self, id: str) -> OpenItem:
        key = ("reasoning", id)
        if self._item is not None and self._item.key == key and id:
            return self._item
        self._close()
        value = {"id": self._items.id("rs", id), "type": "reasoning", "summary": []}
        self._item = self._items.add(value, key)
        return self._item

    def _message(self, extra: dict[str, Any], *, joins: bool) -> OpenItem:
        """joins: a part that does not know its message is of the open one."""
        own, item = self._items.own, self._item
        id, phase = (extra.get("item_id"), extra.get("phase")) if own else (None, None)
        key = ("message", id, phase)
        if item is not None:
            is_message = item.value["type"] == "message"
            if item.key == key or (is_message and joins and id is None):
                return item
        self._close()
        value: dict[str, Any] = {"id": self._items.id("msg", id), "type": "message"}
        value |= {"status": "in_progress", "content": [], "role": "assistant"}
        if phase is not None:
            value["phase"] = phase
        self._item = self._items.add(value, key)
        return self._item

    def _close(self, status: str = "completed") -> None:
        """Ends the open message or reasoning item."""
        item, self._item = self._item, None
        if item is not None:
            if "status" in item.value or status != "completed":
                item.value["status"] = status
            self._items.done(item)

    def _complete(self, part: Part) -> None:
        if isinstance(part, Thinking) and part.redacted:
            self._reasoning(part.id or "")
            if part.signature is not None:
                self._sign(part.signature)
        elif isinstance(part, Text | Refusal | Thinking | ToolCall):
            self._replay(part)
        elif isinstance(part, Opaque) and part.dialect == DIALECT:
            self._complete_opaque(part.value)
        elif isinstance(part, Media) and part.kind == "image" and part.data is not None:
            self._close()
            self._items.add_whole(_image(part, self._items.id("ig")))

    def _complete_opaque(self, value: dict[str, Any]) -> None:
        content = value.get("content_part")
        if not isinstance(content, dict):
            self._close()
            self._items.add_whole(value)
            return
        item = self._message({}, joins=True)
        place = {"item_id": item.value["id"], "output_index": item.index}
        place["content_index"] = len(item.value["content"])
        self._items.emit("response.content_part.added", **place, part=content)
        self._part_done(place, content, "content")

    def _replay(self, part: Text | Refusal | Thinking | ToolCall) -> None:
        """A complete part, reported as one that grew."""
        at = -1  # no part that grows has this number
        kind: Kind = "refusal"
        citations = part.citations if isinstance(part, Text) else ()
        id, name, summary, extra = "", "", False, {}
        signature = None if isinstance(part, Refusal) else part.signature
        if isinstance(part, Text):
            kind, extra = "text", part.extra
        elif isinstance(part, Thinking):
            kind, id, summary = "thinking", part.id or "", part.summary
        elif isinstance(part, ToolCall):
            kind, id, name, extra = "tool_call", part.id, part.name, part.extra
        text = part.arguments if isinstance(part, ToolCall) else part.text
        began = PartStart(
            choice=0, part=at, kind=kind, id=id, name=name, summary=summary, extra=extra
        )
        self._began(began)
        self._grew(PartDelta(choice=0, part=at, text=text, citations=citations))
        self._ended(PartEnd(choice=0, part=at, signature=signature))


def _image(part: Media, id: str) -> dict[str, Any]:
    """A picture is the result of OpenAI's own tool for them."""
    value: dict[str, Any] = {"id": id, "type": "image_generation_call", "status": "completed"}
    value["result"] = part.data
    form = part.mime.removeprefix("image/")
    if form in ("png", "webp", "jpeg", "gif", "svg"):
        value["output_format"] = form
    return value
