"""What a client asks of a chat model, whatever words it used.

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
    """One turn. A tool's turn holds ToolResults alone; adjacent turns may have the same role.

    extra: fields of the message that have no neutral form.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    extra: dict[str, Any] = {}


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call. parameters: a JSON schema; {} if it takes none.

    extra: fields of the tool that have no neutral form.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool | None = None
    cache: CacheMark | None = None
    extra: dict[str, Any] = {}


class HostedTool(msgspec.Struct, frozen=True):
    """A tool that the provider runs (web search, code): known to that dialect alone."""

    dialect: str
    value: dict[str, Any]


class ToolChoice(msgspec.Struct, frozen=True):
    """name: the one function that must be called, with kind "one"; else None."""

    kind: Literal["auto", "none", "required", "one"]
    name: str | None = None


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """kind "json": any JSON object; "schema": JSON that `schema` allows."""

    kind: Literal["text", "json", "schema"]
    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """How much to think. budget_tokens: the most; 0 and effort "none" both mean not at all.

    shown: whether thoughts are wanted in the answer; None: the provider's default.
    summary: the kind of summary asked for ("auto", "concise", "detailed").
    """

    effort: Effort | None = None
    budget_tokens: int | None = None
    adaptive: bool | None = None
    shown: bool | None = None
    summary: str | None = None


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer.

    dialect: the one it was read from. instructions: system and developer text before the first
    turn; such text between turns stays a user's Text with `extra` {"role": "system"} in its
    message's extra. extra: top-level fields that have no neutral form, which a writer of the same
    dialect family puts back and every other one reports as dropped. legacy_functions: the client
    knows OpenAI's older `functions` and `function_call` and not tools; its answer says it so.
    thought_signatures: whether a provider that keeps nothing is asked for what it needs to take
    its thoughts back (OpenAI's include "reasoning.encrypted_content"); clients get it in any case.
    """

    dialect: str
    model: str
    messages: tuple[Message, ...]
    instructions: tuple[Text, ...] = ()
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
    legacy_functions: bool = False
    extra: dict[str, Any] = {}
