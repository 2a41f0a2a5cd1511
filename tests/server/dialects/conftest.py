"""A mock model that thinks and calls tools, and bodies for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.answer_formats.formats import choose_format
from headrace.text import ChatTemplate
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MockEngine

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }};{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.id }}:{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}]{% endfor %}"
    "{% if m.tool_call_id %}@{{ m.tool_call_id }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
    "{% if enable_thinking is defined %}|{{ enable_thinking }}{% endif %}"
)
"""Shows all that a conversation has in one short line."""

FORMAT = choose_format("<think><tool_call>")

THINKS = "<think>hm, é</think>"
SAYS = "Let me see. "
CALLS = '<tool_call>\n{"name": "look", "arguments": {"city": "Köln", "n": [1, 2]}}\n</tool_call>'

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}

Agent = Callable[..., Running]


@pytest.fixture
def agent(start: Callable[..., Running]) -> Agent:
    """`agent(reply)` serves a model that thinks and calls."""

    def run(reply: Any, **changes: Any) -> Running:
        template = ChatTemplate(TEMPLATE)
        return start(MockEngine(reply), template=template, answer_format=FORMAT, **changes)

    return run


def message(**fields: Any) -> dict[str, Any]:
    """A body of one turn for Anthropic's API."""
    turns = [{"role": "user", "content": "x"}]
    return {"model": MODEL, "max_tokens": 200, "messages": turns, **fields}


def turn(**fields: Any) -> dict[str, Any]:
    """The same for Ollama's."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "x"}], **fields}


def prompt_of(running: Running) -> str:
    """The prompt of the last request."""
    ids = running.engine.submitted[-1].prompt_token_ids
    return bytes(token for token in ids if token < 256).decode()
