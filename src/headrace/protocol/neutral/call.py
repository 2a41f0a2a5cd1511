"""A client's request to a chat model, whatever its dialect.

None means "not said": a writer leaves the field out and never puts a default of its own there,
since a provider's default may differ. What a dialect cannot carry it reports as dropped.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.protocol.neutral.part import CacheMark, Part, Text

Role = Literal["user", "assistant", "tool"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. A tool's turn holds only ToolResults; adjacent turns may have the same role."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    extra: dict[str, Any] = {}
    """Fields of the message that have no neutral form."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = {}
    """A JSON schema; {} if it has no parameters."""
    strict: bool | None = None
    cache: CacheMark | None = None
    extra: dict[str, Any] = {}
    """Fields of the tool that have no neutral form."""


class HostedTool(msgspec.Struct, frozen=True):
    """A tool that the provider runs (web search, code): known to that dialect alone."""

    dialect: str
    value: dict[str, Any]


class ToolChoice(msgspec.Struct, frozen=True):
    """The choice of whether and which tools the model calls."""

    kind: Literal["auto", "none", "required", "one"]
    name: str | None = None
    """The one function that must be called, with kind "one"; else None."""


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The required format of the answer. kind "json": any JSON object; "schema": JSON that matches
    `schema`."""

    kind: Literal["text", "json", "schema"]
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of thinking."""

    effort: Effort | None = None
    budget_tokens: int | None = None
    """The most; 0 and effort "none" both mean not at all."""
    adaptive: bool | None = None
    shown: bool | None = None
    """Whether the answer includes thoughts; None: the provider's default."""
    summary: str | None = None
    """The requested kind of summary ("auto", "concise", "detailed")."""


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer."""

    dialect: str
    """The one it was read from."""
    model: str
    messages: tuple[Message, ...]
    instructions: tuple[Text, ...] = ()
    """System and developer text before the first turn; such text between turns is a user's Text
    with `extra` {"role": "system"} in its message's extra."""
    tools: tuple[Tool | HostedTool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choices: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    output: OutputFormat | None = None
    reasoning: Reasoning | None = None
    modalities: tuple[str, ...] = ()
    user: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    stream: bool = False
    stream_usage: bool = False
    thought_signatures: bool | None = None
    """Whether a provider that stores nothing is to return what it needs to read its thoughts again
    (OpenAI's include "reasoning.encrypted_content"); clients get it in any case."""
    legacy_functions: bool = False
    """Whether the client uses OpenAI's older `functions` and `function_call` instead of tools; its
    answer then does too."""
    extra: dict[str, Any] = {}
    """Top-level fields that have no neutral form, which a writer of the same dialect family
    restores and every other one reports as dropped."""
