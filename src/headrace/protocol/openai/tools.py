"""Tools of a conversation: what the model may call, what it must, and the calls of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.errors import RequestError, shown

INVALID_TOOL = "invalid_tool"
INVALID_CHOICE = "invalid_tool_choice"

MAX_TOOLS = 1024
"""Far above what people send (agents have some 100); each is rendered and compiled."""

# OpenAI takes letters, digits, _ and -, at most 64; names of MCP servers have dots and slashes.
ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:/-]{1,256}(?!\n)$")]

_FLAT = ("name", "description", "parameters", "input_schema", "strict")
"""Keys of a tool that other APIs have beside its type."""

CHOICES = ("none", "auto", "required")


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that the model may call."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of its arguments, an object; None for a function without."""
    strict: bool | None = None
    """Whether arguments have to be of the schema, whatever the model would write."""


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a request."""

    type: str = "function"
    function: FunctionDefinition


Tools = Annotated[
    list[ToolDefinition],
    Meta(description="Functions that the model may call, with JSON schemas of their arguments."),
]


class ToolChoice(msgspec.Struct, frozen=True):
    """The choice of whether and which tools the model calls."""

    kind: Literal["none", "auto", "required"]
    names: tuple[str, ...] | None = None
    """The only ones it may call; None for all."""

    @property
    def may_call(self) -> bool:
        """Whether any may be called."""
        return self.kind != "none"

    @property
    def is_named(self) -> bool:
        """Whether one certain tool has to be called."""
        return self.kind == "required" and self.names is not None and len(self.names) == 1


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """The function and arguments of a call; in a stream, what of them is new."""

    name: str | UnsetType = UNSET
    arguments: str
    """JSON as text, or a piece of it."""


class ReplyToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a reply."""

    index: int | UnsetType = UNSET
    """Its number in the message; in a stream alone."""
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionCall


def check_tools(tools: list[ToolDefinition]) -> None:
    """Raise RequestError for too many, and for a name given twice."""
    if len(tools) > MAX_TOOLS:
        raise RequestError(
            f"tools: {len(tools)} tools given, at most {MAX_TOOLS} are accepted",
            param="tools",
            code=INVALID_TOOL,
        )
    names: set[str] = set()
    for index, tool in enumerate(tools):
        name = tool.function.name
        if name in names:
            raise RequestError(
                f"tools[{index}].function.name: {shown(name)} is the name of an earlier tool; "
                "names have to differ",
                param=f"tools[{index}].function.name",
                code=INVALID_TOOL,
            )
        names.add(name)


_NOT_OWN = "this server runs no tools of its own"
_WHY_NOT = {
    "custom": "arguments are JSON here and never free text; a function with one parameter, which "
    "is a string, does the same"
}
"""By the type of a tool."""


def check_tool_shape(tool: Mapping[str, Any], path: str) -> None:
    """Raise RequestError for a tool that is of another kind or of another API, with what it has to
    be; what is of a wrong type is left to the reading of the fields."""
    kind = tool.get("type", "function")
    if isinstance(kind, str) and kind != "function":
        inner = tool.get(kind)
        name = tool.get("name", inner.get("name") if isinstance(inner, Mapping) else None)
        named = f" (named {shown(name)})" if isinstance(name, str) else ""
        raise RequestError(
            f"{path}.type: {shown(kind)}{named} is not supported: {_WHY_NOT.get(kind, _NOT_OWN)}. "
            'Describe a function that your program calls: {"type": "function", "function": '
            '{"name": ..., "parameters": ...}}',
            param=f"{path}.type",
            code="unsupported",
        )
    if tool.get("function") is None and "name" in tool:
        found = ", ".join(name for name in _FLAT if name in tool)
        raise RequestError(
            f"{path}.function: this field is required, and {found} beside `type` found: that is "
            "how /v1/responses and /v1/messages have a tool. Put them into `function`: "
            '{"type": "function", "function": {"name": ..., "parameters": ...}}',
            param=f"{path}.function",
            code=INVALID_TOOL,
        )


def tool_choice_of(choice: Any, tools: list[ToolDefinition]) -> ToolChoice:
    """The choice as a value: auto where it is None, none where there are no tools.

    choice: "none", "auto", "required", `{type: function, function: {name}}` or `{type:
    allowed_tools, allowed_tools: {mode, tools}}`. Raises RequestError naming what is wrong with it.
    """
    if choice is None or choice == "auto" or (choice == "none" and not tools):
        return ToolChoice("auto" if tools else "none")
    if not tools and (isinstance(choice, dict) or choice in CHOICES):
        raise RequestError(
            f"tool_choice: {shown(choice)} needs `tools`; send tools, or omit it",
            param="tool_choice",
            code=INVALID_CHOICE,
        )
    if choice in CHOICES:
        return ToolChoice(choice)
    known = {tool.function.name for tool in tools}
    if isinstance(choice, str) and choice in known:
        raise _name_alone(choice)
    if not isinstance(choice, dict):
        raise _unsupported_choice(choice, "tool_choice")
    if choice.get("type") == "function":
        return ToolChoice("required", (_name_in(choice, "tool_choice", known),))
    if choice.get("type") == "allowed_tools":
        allowed = choice.get("allowed_tools", choice)
        if not isinstance(allowed, dict):
            raise _unsupported_choice(allowed, "tool_choice.allowed_tools")
        mode, listed = allowed.get("mode", "auto"), allowed.get("tools")
        if mode not in ("auto", "required"):
            raise RequestError(
                f"tool_choice.allowed_tools.mode: {shown(mode)} is not supported; accepted: "
                "auto, required",
                param="tool_choice.allowed_tools.mode",
                code="unsupported",
            )
        if not isinstance(listed, list) or not listed:
            raise RequestError(
                "tool_choice.allowed_tools.tools: it must be a list of at least one tool",
                param="tool_choice.allowed_tools.tools",
                code=INVALID_CHOICE,
            )
        names = [
            _name_in(tool, f"tool_choice.allowed_tools.tools[{index}]", known)
            for index, tool in enumerate(listed)
        ]
        return ToolChoice(mode, tuple(dict.fromkeys(names)))
    raise _unsupported_choice(choice, "tool_choice")


def _unsupported_choice(choice: object, param: str) -> RequestError:
    return RequestError(
        f"{param}: {shown(choice)} is not supported; accepted: none, auto, required, "
        '{"type": "function", "function": {"name": ...}} and {"type": "allowed_tools", ...}',
        param=param,
        code="unsupported",
    )


def _name_alone(name: str) -> RequestError:
    """The refusal of a tool's name where a choice of it is meant."""
    return RequestError(
        f"tool_choice: {shown(name)} is the name of a tool; to require a call of it, give "
        f'{{"type": "function", "function": {{"name": "{name}"}}}}',
        param="tool_choice",
        code=INVALID_CHOICE,
    )


def _name_in(tool: object, param: str, known: set[str]) -> str:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in known:
        raise RequestError(
            f"{param}.function.name: {shown(name)} is not the name of one of the tools; they are: "
            f"{', '.join(sorted(known)[:20])}",
            param=f"{param}.function.name",
            code=INVALID_CHOICE,
        )
    return name
