"""A conversation as items of `input`, for a provider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.errors import RequestError
from headrace.protocol.dialects.openai_responses.ids import foreign_id
from headrace.protocol.dialects.openai_responses.media import write_media
from headrace.protocol.dialects.openai_responses.text_parts import written_text
from headrace.protocol.dialects.openai_responses.thoughts import reasoning_item
from headrace.protocol.dialects.openai_responses.values import DIALECT
from headrace.protocol.neutral.call import ChatCall, Message, Role
from headrace.protocol.neutral.losses import opaque_loss
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_SYSTEM_ROLES = ("system", "developer")
_NOT_OF_PART = frozenset({"role", "item_id", "phase"})
# Of texts and messages: `same_message` is the chat dialect's, annotations are what the model cited.
_KNOWN_TO_ALL = frozenset({"role", "item_id", "phase", "annotations", "same_message"})


class InputWriter:
    """A writer of one call's conversation.

    origin: the vendor whose signatures the provider made. unsigned: whether it accepts thoughts
    without a signature. dropped: names of what could not be expressed, filled while writing.
    """

    def __init__(self, call: ChatCall, *, origin: str, unsigned: bool) -> None:
        self._call = call
        self._own = call.dialect == DIALECT
        self._origin = origin
        self._unsigned = unsigned
        self.dropped: set[str] = set()
        self.items: list[dict[str, Any]] = []

    def write(self) -> str | None:
        """Fills `items`; the field `instructions`, None if there is nothing for it.

        Text that was a message of its own (role system or developer) stays one.
        """
        first: list[str] = []
        for instruction in self._call.instructions:
            role = instruction.extra.get("role")
            if role in _SYSTEM_ROLES:
                self._item({"role": role}, [self._input_text(instruction)])
            else:
                self._marked(instruction.cache)
                self._note("instructions", instruction.extra)
                first.append(instruction.text)
        for index, message in enumerate(self._call.messages):
            at = f"messages[{index}]"
            if message.name is not None:
                self.dropped.add("messages.name")
            if not self._own:
                self._note("messages.extra", message.extra)
            if message.role == "assistant":
                self._model_turn(message.parts, at)
            elif message.role == "tool":
                self._results(message, at)
            else:
                self._user_turn(message, at)
        return "\n\n".join(first) if first else None

    def _user_turn(self, message: Message, at: str) -> None:
        content: list[dict[str, Any]] = []
        role = message.extra.get("role")
        head: dict[str, Any] = {"role": role if role in _SYSTEM_ROLES else "user"}
        if self._own:
            head |= message.extra
        for part in message.parts:
            if isinstance(part, Text):
                content.append(self._input_text(part))
            elif isinstance(part, Media):
                content.append(self._media(part, at))
            elif isinstance(part, Opaque) and part.dialect == DIALECT:
                if "content_part" in part.value:
                    content.append(part.value["content_part"])
                else:
                    self._item(head, content)
                    content = []
                    self.items.append(part.value)
            elif isinstance(part, ToolResult):
                self._item(head, content)
                content = []
                self._result(part, {}, at)
            else:
                self._leave(part, "user")
        self._item(head, content)

    def _item(self, head: dict[str, Any], content: list[dict[str, Any]]) -> None:
        """A message; a text alone is written as a string, as clients do."""
        if not content:
            return
        if len(content) == 1 and content[0].keys() == {"type", "text"}:
            self.items.append({**head, "content": content[0]["text"]})
        else:
            self.items.append({**head, "content": content})

    def _input_text(self, part: Text) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "input_text", "text": part.text}
        if not self._own:
            self._note("messages.text", part.extra)
        else:
            written |= {
                name: value for name, value in part.extra.items() if name not in _NOT_OF_PART
            }
        self._marked(part.cache)
        return written

    def _media(self, part: Media, at: str, *, in_tool_result: bool = False) -> dict[str, Any]:
        self._marked(part.cache)
        written = write_media(
            part,
            at,
            takes_audio=self._own and not in_tool_result,
            takes_ids=self._call.dialect.startswith("openai"),
        )
        if self._own:
            return {**part.extra, **written}
        self._note("messages.media", part.extra)
        return written

    def _note(self, place: str, extra: dict[str, Any]) -> None:
        """Names of fields that only another dialect knows."""
        self.dropped.update(f"{place}.{name}" for name in extra if name not in _KNOWN_TO_ALL)

    def _marked(self, cache: CacheMark | None) -> None:
        if cache is not None and not self._own:
            self.dropped.add("messages.cache")

    def _leave(self, part: Part, role: Role) -> None:
        if isinstance(part, Opaque):
            self.dropped.add(opaque_loss(part, role))
        else:
            self.dropped.add(f"messages.{type(part).__name__.lower()}")

    def _results(self, message: Message, at: str) -> None:
        more = dict(message.extra) if self._own else {}
        if "item_id" in more:
            more["id"] = more.pop("item_id")
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._result(part, more, at)
            else:
                self._leave(part, "tool")

    def _result(self, part: ToolResult, more: dict[str, Any], at: str) -> None:
        if part.is_error:
            self.dropped.add("messages.is_error")
        self._marked(part.cache)
        output: str | list[dict[str, Any]]
        if all(isinstance(inner, Text) and not inner.extra for inner in part.content) and (
            len(part.content) < 2
        ):
            output = "".join(inner.text for inner in part.content if isinstance(inner, Text))
        else:
            output = [
                self._input_text(inner)
                if isinstance(inner, Text)
                else self._media(inner, at, in_tool_result=True)
                for inner in part.content
            ]
        item = {"type": "function_call_output", "call_id": part.call_id, "output": output}
        if part.name and self._own:
            item["name"] = part.name
        self.items.append({**more, **item})

    def _model_turn(self, parts: Iterable[Part], at: str) -> None:
        """A turn of the model: its texts are messages, all else is an item of its own."""
        texts: list[Text | Refusal | Opaque] = []
        thoughts: list[Thinking] = []
        for part in parts:
            if thoughts and not (isinstance(part, Thinking) and _same_item(thoughts, part)):
                self._thoughts(thoughts)
                thoughts = []
            of_message = isinstance(part, Text | Refusal) or (
                isinstance(part, Opaque) and "content_part" in part.value
            )
            if texts and not (of_message and self._same_message(texts[0], part)):
                self._message(texts)
                texts = []
            if isinstance(part, Thinking):
                thoughts.append(part)
            elif isinstance(part, Opaque) and part.dialect != DIALECT:
                self._leave(part, "assistant")
            elif of_message:
                assert isinstance(part, Text | Refusal | Opaque)
                texts.append(part)
            elif isinstance(part, ToolCall):
                self._tool_call(part)
            elif isinstance(part, Opaque):
                self.items.append(part.value)
            elif isinstance(part, Media):
                raise RequestError(
                    f"{at}: {part.kind} that the model produced cannot be sent back to a "
                    "provider of OpenAI's Responses API; omit it from the conversation",
                    param=at,
                    code="unsupported_media",
                )
            else:
                self._leave(part, "assistant")
        self._message(texts)
        self._thoughts(thoughts)

    def _same_message(self, first: Part, part: Part) -> bool:
        """Whether a part belongs to the same message: only messages with an id have several parts;
        a refusal belongs to the text before it."""
        before = first.extra if isinstance(first, Text) else {}
        if not self._own or before.get("item_id") is None:
            return False
        if not isinstance(part, Text):
            return True
        after = part.extra
        return all(before.get(name) == after.get(name) for name in ("item_id", "phase"))

    def _message(self, parts: list[Text | Refusal | Opaque]) -> None:
        if not parts:
            return
        head: dict[str, Any] = {"role": "assistant"}
        extra = parts[0].extra if isinstance(parts[0], Text) and self._own else {}
        if phase := extra.get("phase"):
            head["phase"] = phase
        for part in parts:
            if isinstance(part, Text):
                self._marked(part.cache)
                if not self._own:
                    self._note("messages.text", part.extra)
        only = parts[0]
        if isinstance(only, Text) and len(parts) == 1 and not extra.keys() - {"phase"}:
            self.items.append({**head, "content": only.text})
            return
        if id := extra.get("item_id"):
            head = {"type": "message", "id": id, "status": "completed", **head}
        self.items.append({**head, "content": [self._content(part) for part in parts]})

    def _content(self, part: Text | Refusal | Opaque) -> dict[str, Any]:
        if isinstance(part, Text):
            return written_text(part.text, part.extra, own=self._own)
        if isinstance(part, Refusal):
            return {"type": "refusal", "refusal": part.text}
        content: dict[str, Any] = part.value["content_part"]
        return content

    def _tool_call(self, part: ToolCall) -> None:
        item = {
            "type": "function_call",
            "call_id": part.id,
            "name": part.name,
            "arguments": part.arguments,
        }
        self._marked(part.cache)
        if self._own:
            extra = dict(part.extra)
            if "item_id" in extra:
                extra["id"] = extra.pop("item_id")
            item = {**extra, **item}
        else:
            self._note("messages.tool_calls", part.extra)
        self.items.append(item)

    def _thoughts(self, parts: list[Thinking]) -> None:
        """One reasoning item, if the provider accepts it."""
        if not parts:
            return
        id = foreign_id(parts[0].id or "")
        signature = parts[-1].signature
        if signature is not None and signature.origin != self._origin:
            return
        # Unsigned, an item of this dialect stands for the one that the provider keeps.
        if signature is None and not (self._unsigned or (self._own and id is not None)):
            return
        # A thought that came through a dialect without ids and summaries is a summary to those who
        # signed it: they do not give away the thoughts themselves.
        if signature is not None and not self._own:
            parts = [Thinking(text=part.text, summary=True) for part in parts if part.text]
        item = reasoning_item(parts, id)
        if signature is not None:
            item["encrypted_content"] = signature.value
        self.items.append(item)


def _same_item(before: list[Thinking], part: Thinking) -> bool:
    last = before[-1]
    return part.id is not None and part.id == last.id and last.signature is None
