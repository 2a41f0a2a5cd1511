"""A conversation for a provider: neutral messages in, its messages out.

What a message cannot say goes elsewhere if it can: pictures of a tool's result into a user's
message after the results. What has no place at all is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.media import write_media
from headrace.protocol.dialects.openai_chat.thoughts import write_call_signature, write_details
from headrace.protocol.dialects.openai_chat.values import DIALECT, add_missing, mapping
from headrace.protocol.dialects.openai_chat.variant import Variant
from headrace.protocol.neutral.call import Message
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
_OF_MESSAGE = frozenset({"role", "same_message", "name", "message"})


class MessageWriter:
    """A writer of messages for one variant. dropped: names of what it could not express, in order,
    once each."""

    def __init__(self, variant: Variant, *, same_dialect: bool) -> None:
        self._variant = variant
        self._takes = variant.takes
        self._same_dialect = same_dialect
        self.dropped: list[str] = []

    def drop(self, name: str) -> None:
        """Note what is not said."""
        if name not in self.dropped:
            self.dropped.append(name)

    def instructions(self, texts: Sequence[Text]) -> list[dict[str, Any]]:
        """System messages: one for each text, or for those that were one message."""
        if not texts:
            return []
        if self._variant.one_system_message:
            joined = "\n\n".join(text.text for text in texts)
            if any(instruction.cache for instruction in texts):
                self.drop("cache")
            return [{"role": "system", "content": joined}]
        groups: list[list[Text]] = []
        for instruction in texts:
            if groups and instruction.extra.get("same_message"):
                groups[-1].append(instruction)
            else:
                groups.append([instruction])
        return [self._system(group) for group in groups]

    def _system(self, group: list[Text]) -> dict[str, Any]:
        message = {"role": self._system_role(group[0].extra.get("role"))}
        own = mapping(group[0].extra.get("message"))
        name = group[0].extra.get("name")
        if name is not None:
            self._name(message, name)
        texts = [
            msgspec.structs.replace(
                instruction,
                extra={k: v for k, v in instruction.extra.items() if k not in _OF_MESSAGE},
            )
            for instruction in group
        ]
        return {**message, "content": self._content(texts), **self._own(own)}

    def _system_role(self, asked: Any) -> str:
        developer = asked == "developer" and self._variant.system_role == "asked"
        return "developer" if developer else "system"

    def _name(self, message: dict[str, Any], name: str) -> None:
        if "names" in self._takes:
            message["name"] = name
        else:
            self.drop("messages.name")

    def _own(self, extra: dict[str, Any]) -> dict[str, Any]:
        """Extra fields, which only their own dialect can mean."""
        if self._same_dialect:
            return extra
        for name in extra:
            self.drop(f"messages.extra.{name}")
        return {}

    def messages(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """All turns, in order."""
        written: list[dict[str, Any]] = []
        held: list[dict[str, Any]] = []  # pictures of results, which may not part the results
        for message in messages:
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            if held and not results:
                written.append({"role": "user", "content": held})
                held = []
            for result in results:
                written.append(self._result(result, held))
                if message.role == "tool":
                    written[-1].update(self._own(message.extra))
            if message.role == "assistant":
                written.append(self._assistant(message))
            elif len(results) < len(message.parts) or not message.parts:
                written.append(self._user(message))
        if held:
            written.append({"role": "user", "content": held})
        return written

    def _user(self, message: Message) -> dict[str, Any]:
        extra = dict(message.extra)
        asked = extra.pop("role", None)
        system = asked in _SYSTEM_ROLES and self._variant.late_system
        if asked in _SYSTEM_ROLES and not system:
            self.drop("messages.role")
        written: dict[str, Any] = {"role": self._system_role(asked) if system else "user"}
        if message.name is not None:
            self._name(written, message.name)
        written["content"] = self._content(
            [part for part in message.parts if not isinstance(part, ToolResult)]
        )
        return {**written, **self._own(extra)}

    def _content(self, parts: Sequence[Part], *, extra: bool = True) -> str | list[dict[str, Any]]:
        """A string where one text is all, else parts; texts joined by lines for servers of text."""
        marks = self._variant.cache_marks != "none"
        if len(parts) == 1 and isinstance(parts[0], Text):
            only = parts[0]
            if not (marks and only.cache) and not (extra and self._same_dialect and only.extra):
                if only.cache is not None:
                    self.drop("cache")
                return only.text
        written = [made for made in (self._part(part, extra=extra) for part in parts) if made]
        if "parts" in self._takes or any(made["type"] != "text" for made in written):
            return written
        return "\n".join(made["text"] for made in written)

    def _part(self, part: Part, *, extra: bool) -> dict[str, Any] | None:
        if isinstance(part, Text):
            more = self._own(part.extra) if extra else {}
            return self._mark({"type": "text", "text": part.text, **more}, part.cache)
        if isinstance(part, Media):
            written = write_media(part) if part.kind in self._takes else None
            if written is None:
                self.drop(f"messages.{part.kind}")
                return None
            if extra:
                add_missing(written, self._own(part.extra))
            return self._mark(written, part.cache)
        if isinstance(part, Opaque) and part.dialect == DIALECT:
            return part.value
        if isinstance(part, Refusal):
            return {"type": "text", "text": part.text}
        if isinstance(part, Opaque):
            self.drop(opaque_loss(part, "user"))
        elif not isinstance(part, Thinking):
            self.drop(f"messages.{type(part).__name__.lower()}")
        return None

    def _mark(self, written: dict[str, Any], cache: CacheMark | None) -> dict[str, Any]:
        if cache is None:
            return written
        if self._variant.cache_marks == "cache_control":
            control = {"type": "ephemeral"}
            if cache.lifetime is not None:
                control["ttl"] = cache.lifetime
            written["cache_control"] = control
        elif self._variant.cache_marks == "prompt_cache_breakpoint":
            written["prompt_cache_breakpoint"] = {"mode": "explicit"}
            if cache.lifetime is not None:
                self.drop("cache.lifetime")
        else:
            self.drop("cache")
        return written

    def _result(self, result: ToolResult, held: list[dict[str, Any]]) -> dict[str, Any]:
        texts = [inner for inner in result.content if isinstance(inner, Text)]
        for part in result.content:
            if isinstance(part, Media):
                written = self._part(part, extra=False)
                if written is not None:
                    held.append(written)
        if result.is_error:
            self.drop("messages.is_error")
        content = self._content(texts, extra=False) if texts else ""
        if result.cache is not None:
            if self._variant.cache_marks == "cache_control" and isinstance(content, str):
                content = [{"type": "text", "text": content}]
            if isinstance(content, list) and content:
                self._mark(content[-1], result.cache)
            else:
                self.drop("cache")
        return {"role": "tool", "tool_call_id": result.call_id, "content": content}

    def _assistant(self, message: Message) -> dict[str, Any]:
        written: dict[str, Any] = {"role": "assistant", "content": None}
        if message.name is not None:
            self._name(written, message.name)
        texts: list[Part] = []
        calls: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.append(self._call(part))
            elif isinstance(part, Opaque):
                self._opaque(part, calls, texts)
            elif isinstance(part, Text):
                texts.append(part)
                if part.signature is not None and part.signature.origin == "gemini":
                    self._sign(written, part)
            elif isinstance(part, Refusal):
                written["refusal"] = part.text
            elif isinstance(part, Media):
                self._made(part, written)
        if texts:
            written["content"] = self._assistant_content(texts)
        if calls:
            written["tool_calls"] = calls
        self._thoughts(message.parts, written)
        return {**written, **self._own(message.extra)}

    def _sign(self, written: dict[str, Any], part: Text) -> None:
        if self._variant.google_signatures and part.signature is not None:
            written["extra_content"] = write_call_signature(part.signature)

    def _opaque(self, part: Opaque, calls: list[dict[str, Any]], texts: list[Part]) -> None:
        if part.dialect != DIALECT:
            self.drop(opaque_loss(part, "assistant"))
        elif "custom" in part.value or part.value.get("type") == "custom":
            calls.append(part.value)
        else:
            texts.append(part)

    def _assistant_content(self, texts: list[Part]) -> str | list[dict[str, Any]]:
        plain = [text for text in texts if isinstance(text, Text)]
        marked = self._variant.cache_marks != "none" and any(part.cache for part in plain)
        if marked or len(plain) < len(texts):
            return [made for made in (self._part(part, extra=False) for part in texts) if made]
        if any(part.cache for part in plain):
            self.drop("cache")
        return "".join(part.text for part in plain)

    def _made(self, media: Media, written: dict[str, Any]) -> None:
        """Media that the model itself made: a recording by its id, pictures as OpenRouter lists
        them."""
        number = media.file_id or media.extra.get("id")
        if media.kind == "audio" and number and "audio" in self._takes:
            written["audio"] = {"id": number}
            return
        shown = media.kind == "image" and "made_images" in self._takes
        part = write_media(media) if shown else None
        if part is None:
            self.drop(f"messages.{media.kind}")
        else:
            written.setdefault("images", []).append(part)

    def _call(self, call: ToolCall) -> dict[str, Any]:
        written: dict[str, Any] = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        if call.signature is not None and self._variant.google_signatures:
            written["extra_content"] = write_call_signature(call.signature)
        if self._same_dialect:
            written.update(call.extra)
        for name in () if self._same_dialect else call.extra:
            self.drop(f"messages.tool_calls.{name}")
        if call.cache is not None:
            self.drop("cache")
        return written

    def _thoughts(self, parts: Sequence[Part], written: dict[str, Any]) -> None:
        """Thoughts as the variant takes them back; signed ones are for OpenRouter alone."""
        field = self._variant.thoughts
        if field == "reasoning_details":
            details = write_details(parts, signatures_of_calls=True)
            if details:
                written["reasoning_details"] = details
        elif field != "none":
            thoughts = [
                part.text for part in parts if isinstance(part, Thinking) and part.signature is None
            ]
            if thoughts or ("tool_calls" in written and self._variant.thoughts_with_calls):
                written[field] = "".join(thoughts)
