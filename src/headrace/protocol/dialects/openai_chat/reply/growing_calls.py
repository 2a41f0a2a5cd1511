"""The tool calls of a streamed choice while they grow, side by side.

OpenAI numbers them and gives id and name once. Others leave out the index, give every call the
same one, repeat id and name with each piece, give no id, or the arguments as an object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.request.read_message import (
    call_extra,
    made_id,
    read_arguments,
)
from headrace.protocol.dialects.openai_chat.thoughts import read_call_signature
from headrace.protocol.dialects.openai_chat.values import DIALECT, mapping, text, whole
from headrace.protocol.neutral.arguments import GrowingArguments
from headrace.protocol.neutral.event import Event, PartDelta, PartEnd, PartStart
from headrace.protocol.neutral.part import Opaque, Signature

_MOST_CALLS = 1024


class DamagedStreamError(ValueError):
    """A delta cannot be taken; the text says why."""


class Numbers:
    """A counter of a choice's parts."""

    def __init__(self) -> None:
        self.next = 0

    def take(self) -> int:
        """The next one's number."""
        self.next += 1
        return self.next - 1


class _Call:
    """An open call. part: its number, None until its name is known. whole: it came in one piece."""

    def __init__(self, index: int | None, number: int, extra: dict[str, Any]) -> None:
        self.index = index
        self.number = number
        self.extra = extra
        self.part: int | None = None
        self.id = ""
        self.early: list[str] = []
        self.early_logprobs: list[dict[str, Any]] = []
        self.arguments = GrowingArguments()
        self.whole = False
        self.signature: Signature | None = None


class GrowingCalls:
    """Tool calls assembled from fragments; `end` closes all. kept: how many things wait for a name
    or for the end."""

    def __init__(self, choice: int, reply_id: str, numbers: Numbers) -> None:
        self._choice = choice
        self._reply_id = reply_id
        self._numbers = numbers
        self._calls: list[_Call] = []
        self._customs: dict[int, dict[str, Any]] = {}
        self._count = 0
        self.named = 0
        self.kept = 0

    @property
    def any(self) -> bool:
        """Whether the answer calls anything."""
        return bool(self.named or self._customs)

    @property
    def open(self) -> bool:
        """Whether a call may still grow."""
        return bool(self._calls)

    def is_piece(self, fragment: dict[str, Any]) -> bool:
        """Whether a fragment says anything (Snowflake sends empty ones)."""
        function = mapping(fragment.get("function"))
        return bool(
            function.get("name")
            or function.get("arguments")
            or fragment.get("id")
            or fragment.get("extra_content")
        )

    def take(
        self,
        fragment: dict[str, Any],
        logprobs: list[dict[str, Any]] | None,
        events: list[Event],
    ) -> None:
        """One fragment that `is_piece`. Raises DamagedStreamError for one call too many."""
        function = mapping(fragment.get("function"))
        name, arguments = text(function.get("name")), read_arguments(function.get("arguments"))
        call = self._find(fragment, name, arguments)
        if call is None:
            call = self._new(fragment)
        call.id = call.id or text(fragment.get("id"))
        call.signature = read_call_signature(fragment) or call.signature
        if call.part is None and name:
            self._begin(call, name, arguments, logprobs, events)
        elif call.part is None:
            call.early.append(arguments)
            call.early_logprobs += logprobs or []
            self.kept += 1
        else:
            self._grow(call, call.part, arguments, logprobs, events)

    def _find(self, fragment: dict[str, Any], name: str, arguments: str) -> _Call | None:
        """The open call that a fragment is of; None if it opens one.

        By index; by id where there is none; else the last. A fragment with another id and a name,
        or with a name after a call that was whole at once, opens a call under a used index.
        """
        number, index = text(fragment.get("id")), whole(fragment.get("index"))
        found: _Call | None = None
        if index is not None:
            found = next((call for call in reversed(self._calls) if call.index == index), None)
        elif number:
            found = next((known for known in reversed(self._calls) if known.id == number), None)
        elif not name and self._calls:
            found = self._calls[-1]
        if found is None or found.part is None:
            return found
        other = bool(number) and number != found.id and bool(name)
        again = not number and bool(name) and bool(arguments) and found.whole
        return None if other or again else found

    def _new(self, fragment: dict[str, Any]) -> _Call:
        if self._count >= _MOST_CALLS:
            raise DamagedStreamError(f"more than {_MOST_CALLS} tool calls in one answer")
        call = _Call(whole(fragment.get("index")), self._count, call_extra(fragment))
        self._count += 1
        self._calls.append(call)
        return call

    def _begin(
        self,
        call: _Call,
        name: str,
        arguments: str,
        logprobs: list[dict[str, Any]] | None,
        events: list[Event],
    ) -> None:
        call.id = call.id or made_id(self._reply_id, self._choice, call.number, name)
        call.part = self._numbers.take()
        self.named += 1
        call.whole = bool(arguments) and not call.early and _is_json(arguments)
        events.append(
            PartStart(
                choice=self._choice,
                part=call.part,
                kind="tool_call",
                id=call.id,
                name=name,
                extra=call.extra,
            )
        )
        piece = "".join(call.early) + arguments
        before = call.early_logprobs
        call.early, call.early_logprobs = [], []
        self._grow(call, call.part, piece, before + (logprobs or []), events)

    def _grow(
        self,
        call: _Call,
        part: int,
        piece: str,
        logprobs: list[dict[str, Any]] | None,
        events: list[Event],
    ) -> None:
        piece = call.arguments.take(piece)
        if piece or logprobs:
            events.append(
                PartDelta(choice=self._choice, part=part, text=piece, logprobs=logprobs or None)
            )

    def end(
        self,
        hidden: dict[str, Signature],
        google: Signature | None,
        logprobs: list[dict[str, Any]] | None,
        events: list[Event],
    ) -> Signature | None:
        """Close all. hidden: signatures by call id, of which those used are taken out. logprobs:
        of tokens after the last piece.

        Returns `google`, a signature of the whole message, if no call took it.
        """
        calls, self._calls = self._calls, []
        for call in calls:
            if call.part is None:
                continue  # it never had a name: nobody could be asked to run it
            signature = call.signature or hidden.pop(call.id, None)
            if signature is None:
                signature, google = google, None
            rest = call.arguments.end()
            if rest or logprobs:
                events.append(
                    PartDelta(
                        choice=self._choice, part=call.part, text=rest, logprobs=logprobs or None
                    )
                )
                logprobs = None
            events.append(PartEnd(choice=self._choice, part=call.part, signature=signature))
        return google

    def take_custom(self, fragment: dict[str, Any]) -> None:
        """A piece of a call of a custom tool, which is reported when it is complete."""
        custom = mapping(fragment.get("custom"))
        index = whole(fragment.get("index")) or 0
        if index not in self._customs:
            if len(self._customs) >= _MOST_CALLS:
                raise DamagedStreamError(f"more than {_MOST_CALLS} tool calls in one answer")
            self._customs[index] = {
                "id": text(fragment.get("id")),
                "name": text(custom.get("name")),
                "pieces": [],
            }
        self._customs[index]["pieces"].append(text(custom.get("input")))
        self.kept += 1

    @property
    def customs(self) -> list[Opaque]:
        """The calls of custom tools, whole."""
        return [
            Opaque(
                DIALECT,
                {
                    "id": custom["id"],
                    "type": "custom",
                    "custom": {"name": custom["name"], "input": "".join(custom["pieces"])},
                },
            )
            for _, custom in sorted(self._customs.items())
        ]


def _is_json(arguments: str) -> bool:
    try:
        msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return False
    return True
