"""Requests in the shapes that agents, frameworks and chat pages send, written by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MESSAGES, OLLAMA = "/v1/messages", "/api/chat"

_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "A file."}},
    "required": ["path"],
    "additionalProperties": False,
}
_MARK = {"type": "ephemeral"}
_VERSION = ("anthropic-version", "2023-06-01")


class Shape(NamedTuple):
    """A client's request."""

    name: str
    dialect: str
    path: str
    body: dict[str, Any]
    headers: tuple[tuple[str, str], ...] = ()


def _claude_code(thinking: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 32_000,
        "stream": True,
        "system": [
            {"type": "text", "text": "You are an agent in a terminal.", "cache_control": _MARK},
            {"type": "text", "text": "The folder is /src.", "cache_control": _MARK},
        ],
        "metadata": {"user_id": "user_0_account__session_1"},
        "thinking": thinking,
        "tools": [
            {"name": "read", "description": "Read a file.", "input_schema": _SCHEMA},
            {
                "name": "edit",
                "description": "Edit a file.",
                "input_schema": _SCHEMA,
                "cache_control": _MARK,
            },
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Read a.py."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I read it."},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": "No such file.",
                        "is_error": True,
                        "cache_control": _MARK,
                    }
                ],
            },
        ],
        **more,
    }


def _function(**more: Any) -> dict[str, Any]:
    return {"name": "read", "description": "Read a file.", "parameters": _SCHEMA, **more}


SHAPES = (
    Shape(
        "Claude Code, a budget of thoughts",
        "anthropic",
        MESSAGES,
        _claude_code({"type": "enabled", "budget_tokens": 10_000}, temperature=1),
        (("anthropic-beta", "interleaved-thinking-2025-05-14"), _VERSION),
    ),
    Shape(
        "Claude Code, adaptive thoughts",
        "anthropic",
        MESSAGES,
        _claude_code(
            {"type": "adaptive"},
            output_config={"effort": "high"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        ),
        (("anthropic-beta", "context-management-2025-06-27"), _VERSION),
    ),
    Shape(
        "Codex, functions",
        "openai-responses",
        RESPONSES,
        {
            "model": "m",
            "instructions": "You are a coding agent.",
            "input": [
                {
                    "type": "message",
                    "role": "developer",
                    "content": [{"type": "input_text", "text": "The sandbox is read-only."}],
                },
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Read a.py."}],
                },
            ],
            "tools": [{"type": "function", "strict": False, **_function()}],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "0199",
            "text": {"verbosity": "medium"},
        },
    ),
    Shape(
        "OpenAI Agents SDK",
        "openai-chat",
        CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": "You are an agent."},
                {"role": "user", "content": "Read a.py."},
            ],
            "tools": [{"type": "function", "function": _function(strict=True)}],
            "parallel_tool_calls": False,
            "metadata": {"trace": "1"},
            "user": "ada",
            "seed": 7,
            "reasoning_effort": "low",
            "verbosity": "low",
            "store": True,
        },
    ),
    Shape(
        "LangChain, names of speakers",
        "openai-chat",
        CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "You are a supervisor."},
                {"role": "user", "content": "Ask the researcher.", "name": "ada"},
                {"role": "assistant", "content": "I did.", "name": "researcher"},
                {"role": "user", "content": "And?", "name": "ada"},
            ],
            "tools": [{"type": "function", "function": _function()}],
            "n": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "max_completion_tokens": 1000,
            "temperature": 0.7,
        },
    ),
    Shape(
        "Open WebUI, OpenAI",
        "openai-chat",
        CHAT,
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "frequency_penalty": 0.2,
            "presence_penalty": 0,
            "seed": 42,
            "top_k": 40,
            "min_p": 0.0,
            "reasoning_effort": "medium",
        },
    ),
    Shape(
        "Open WebUI, Ollama",
        "ollama",
        OLLAMA,
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi"},
            ],
            "stream": True,
            "options": {
                "repeat_penalty": 1.1,
                "seed": 42,
                "num_ctx": 8192,
                "temperature": 0.8,
                "mirostat": 0,
            },
            "keep_alive": "5m",
        },
    ),
)
