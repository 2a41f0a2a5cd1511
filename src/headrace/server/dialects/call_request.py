"""A neutral call as our own request for a chat completion: all of it, or a refusal.

A part or a setting that this server cannot honour and without which the answer would be another is
refused by the name that the client wrote; a hint is left out and named. Marks of what is worth
caching ask for what happens anyway. Thoughts of earlier turns go to the chat template, which keeps
or strips them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from headrace.conversation.request import THINKING_SWITCHES
from headrace.engine.limits import check_ranges
from headrace.errors import RequestError, shown
from headrace.protocol.neutral.call import ChatCall, HostedTool, Message, Tool
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.losses import FieldPaths, Losses, has_meaning, losses, opaque_loss
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from headrace.protocol.openai.chat import ChatCompletionRequest
from headrace.protocol.openai.fields import CHAT
from headrace.protocol.openai.structured import StructuredFields
from headrace.protocol.request import parse_values
from headrace.server.dialects.client_names import client_names
from headrace.server.dialects.thought_signature import thought_of

_SYSTEM_ROLES = ("system", "developer")

# Of the same name and meaning in both.
_SAME = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "parallel_tool_calls",
    "logprobs",
    "top_logprobs",
)

OWN_FIELDS = frozenset(
    {
        "add_special_tokens",
        "allowed_token_ids",
        "bad_words",
        "cache_salt",
        "chat_template",
        "chat_template_kwargs",
        "ignore_eos",
        "include_stop_str_in_output",
        "min_tokens",
        "priority",
        "request_id",
        "samplers",
        "skip_special_tokens",
        "speculation",
        "stop_token_ids",
        *StructuredFields.__struct_fields__,
        "thinking_token_budget",
        "timeout_s",
        "truncate_prompt_tokens",
    }
)
"""Fields of this server's that a client of any dialect may add, under the names they have in chat
completions."""


_ANTHROPICS = (
    "only Anthropic's models know what its calls look like; give a tool with a name, a description "
    "and an input_schema of it"
)
_OF_TOOLS = {
    "bash_": _ANTHROPICS,
    "computer_2": _ANTHROPICS,  # a year follows
    "custom": "models write a call's arguments as JSON, in which its text is escaped, so it can "
    "neither be passed on as it stands nor be held to a grammar of its own; give a function with "
    "one string parameter",
    "memory_": _ANTHROPICS,
    "text_editor_": _ANTHROPICS,
}
"""Why a kind of tools is refused, and what to do, by how its type begins."""


class ReadCall(NamedTuple):
    """A call as our own request."""

    request: ChatCompletionRequest
    ignored: tuple[str, ...]
    """Hints that have no effect here, by the client's names."""


def chat_request(
    call: ChatCall,
    side: ClientSide,
    *,
    has: Callable[[str], bool] = lambda _: False,
    place: Callable[[str], str] = lambda path: path,
    more: dict[str, Any] | None = None,
    continues: bool = False,
    taken: frozenset[str] = frozenset(),
) -> ReadCall:
    """The request that a call is; raises RequestError naming the client's field at fault.

    has: whether the client's body has a field at a path. place: where it has the first of those
    that a path leads to. more: fields of the request beside the
    call's. continues: whether the answer goes on with an assistant's message that is the last one.
    taken: fields of the call's extra that somebody else honours.
    """
    _refuse_hosted_tools(call)
    written = _Writer(taken, side.field_paths)
    values = written.request(call)
    values.update(more or {})
    if continues and _is_open(call):
        values |= {"continue_final_message": True, "add_generation_prompt": False}
    lost = losses(call, written.dropped, side.field_paths, has)
    _refuse_meanings(lost, place)
    with client_names(side.field_paths, has):
        request = parse_values(values, CHAT)
        check_ranges(request)
    return ReadCall(request, lost.hints)


def _refuse_hosted_tools(call: ChatCall) -> None:
    for index, tool in enumerate(call.tools):
        if not isinstance(tool, HostedTool):
            continue
        kind = tool.value.get("type", tool.dialect)
        if has_meaning(f"tools.{kind}"):
            param = f"tools[{index}].type"
            why = next(
                (why for start, why in _OF_TOOLS.items() if kind.startswith(start)),
                "no tools are run here; give functions of the client's",
            )
            raise RequestError(
                f"{param}: {shown(kind)} is not supported: {why}", param=param, code="unsupported"
            )


def _refuse_meanings(lost: Losses, place: Callable[[str], str]) -> None:
    if lost.meaning:
        path = place(lost.meaning[0])
        raise RequestError(
            f"{path}: this server does not support it; the model reads and writes text and calls "
            "functions of the client's",
            param=path,
            code="unsupported",
        )


def _is_open(call: ChatCall) -> bool:
    """Whether the last turn is an assistant's text, which an answer can go on with."""
    if not call.messages or call.messages[-1].role != "assistant":
        return False
    parts = call.messages[-1].parts
    return bool(parts) and isinstance(parts[-1], Text)


class _Writer:
    """A writer of one request. dropped: what it leaves out, as names of the call's fields."""

    def __init__(self, taken: frozenset[str], paths: FieldPaths) -> None:
        self.dropped: list[str] = []
        self._taken = taken
        self._paths = paths

    def request(self, call: ChatCall) -> dict[str, Any]:
        """The fields of the request."""
        values: dict[str, Any] = {
            "model": call.model,
            "messages": self._messages(call),
            "stream": call.stream,
        }
        for name in _SAME:
            value = getattr(call, name)
            if value is not None:
                values[name] = value
        if call.stop:
            values["stop"] = list(call.stop)
        if call.choices is not None:
            values["n"] = call.choices
        self._tools(call, values)
        self._output(call, values)
        self._reasoning(call, values)
        self._extra(call, values)
        if call.modalities and call.modalities != ("text",):
            self.dropped.append("modalities")
        if call.service_tier is not None:
            self.dropped.append("service_tier")
        return values

    def _messages(self, call: ChatCall) -> list[dict[str, Any]]:
        written = [
            {"role": role, "content": "\n\n".join(text.text for text in texts)}
            for role, texts in groupby(call.instructions, _role_of)
        ]
        for message in call.messages:
            self._message(message, written)
        return written

    def _message(self, message: Message, written: list[dict[str, Any]]) -> None:
        if message.role == "assistant":
            written.append(self._assistant(message))
            return
        rest = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                written.append(self._result(part))
            else:
                rest.append(part)
        if rest or not message.parts:
            own_role = message.extra.get("role")
            role = own_role if own_role in _SYSTEM_ROLES else "user"
            turn: dict[str, Any] = {"role": role, "content": self._content(rest, "user")}
            if message.name is not None:
                turn["name"] = message.name
            written.append(turn)

    def _assistant(self, message: Message) -> dict[str, Any]:
        turn: dict[str, Any] = {"role": "assistant"}
        texts = [part for part in message.parts if not isinstance(part, Thinking | ToolCall)]
        if texts:
            turn["content"] = self._content(texts, "assistant")
        thoughts = [thought_of(part) for part in message.parts if isinstance(part, Thinking)]
        if reasoning := "\n".join(thought for thought in thoughts if thought):
            turn["reasoning"] = reasoning
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        if calls:
            turn["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        if message.name is not None:
            turn["name"] = message.name
        return turn

    def _result(self, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            self.dropped.append("messages.is_error")
        turn: dict[str, Any] = {
            "role": "tool",
            "tool_call_id": result.call_id,
            "content": self._content(result.content, "user"),
        }
        if result.name:
            turn["name"] = result.name
        return turn

    def _content(self, parts: Sequence[Part], role: Any) -> str | list[dict[str, Any]]:
        """A string where one text is all; as parts the template decides what is between them."""
        texts: list[str] = []
        for part in parts:
            if isinstance(part, Text | Refusal):
                texts.append(part.text)
            elif isinstance(part, Media) and (text := _document_text(part)) is not None:
                texts.append(text)
            elif isinstance(part, Media):
                self.dropped.append(f"messages.{part.kind}")
            elif isinstance(part, Opaque):
                self.dropped.append(opaque_loss(part, role))
        if role == "assistant":
            return "".join(texts)
        if len(texts) < 2:
            return "".join(texts)
        return [{"type": "text", "text": text} for text in texts]

    def _tools(self, call: ChatCall, values: dict[str, Any]) -> None:
        tools = []
        for tool in call.tools:
            if isinstance(tool, HostedTool):
                self.dropped.append(f"tools.{tool.value.get('type', tool.dialect)}")
            else:
                tools.append(self._tool(tool))
        if tools:
            values["tools"] = tools
        choice = call.tool_choice
        if choice is None:
            return
        if choice.kind == "one":
            values["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
        elif tools or choice.kind == "required":
            values["tool_choice"] = choice.kind

    def _tool(self, tool: Tool) -> dict[str, Any]:
        function: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters}
        if tool.description is not None:
            function["description"] = tool.description
        if tool.strict is not None:
            function["strict"] = tool.strict
        self.dropped += [f"tools.extra.{name}" for name in tool.extra]
        return {"type": "function", "function": function}

    def _output(self, call: ChatCall, values: dict[str, Any]) -> None:
        output = call.output
        if output is None or output.kind == "text":
            return
        if output.kind == "json":
            values["response_format"] = {"type": "json_object"}
            return
        form: dict[str, Any] = {"name": output.name or "answer", "schema": output.schema or {}}
        if output.strict is not None:
            form["strict"] = output.strict
        values["response_format"] = {"type": "json_schema", "json_schema": form}

    def _reasoning(self, call: ChatCall, values: dict[str, Any]) -> None:
        reasoning = call.reasoning
        if reasoning is None:
            return
        if reasoning.budget_tokens == 0 or reasoning.effort == "none":
            values["reasoning_effort"] = "none"
            return
        if reasoning.effort is not None:
            values["reasoning_effort"] = reasoning.effort
        elif reasoning.adaptive or reasoning.budget_tokens is not None:
            values["chat_template_kwargs"] = dict.fromkeys(THINKING_SWITCHES, True)
        if reasoning.budget_tokens is not None:
            values["thinking_token_budget"] = reasoning.budget_tokens
        if reasoning.summary is not None:
            self.dropped.append("reasoning.summary")

    def _extra(self, call: ChatCall, values: dict[str, Any]) -> None:
        for name, value in call.extra.items():
            if name == "chat_template_kwargs" and isinstance(value, dict):
                values[name] = values.get(name, {}) | value
            elif name in OWN_FIELDS and name not in values:
                values[name] = value
            elif name in self._taken:
                continue
            elif name not in CHAT.known or self._is_hint(name, value):
                self.dropped.append(f"extra.{name}")

    def _is_hint(self, name: str, value: Any) -> bool:
        path = self._paths.get(f"extra.{name}", (name,))[0]
        return CHAT.known[name].is_hint(value, path)


def _document_text(part: Media) -> str | None:
    """The title and text of a document of plain text; None for one of another kind."""
    if part.kind != "document" or part.data is None or not part.mime.startswith("text/"):
        return None
    try:
        text = b64decode(part.data, validate=True).decode()
    except ValueError:  # of base64 and of UTF-8
        return None
    return f"{part.name}\n{text}" if part.name else text


def _role_of(text: Text) -> str:
    return "developer" if text.extra.get("role") == "developer" else "system"
