"""The chat templates of the assets that write calls of tools, and what they write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from headrace.answer_formats.derivation.derive import Render
from headrace.errors import HeadraceError
from headrace.text.chat_template import ChatTemplate
from tests.answer_formats.cuts import TOOLS

USER = {"role": "user", "content": "What is it like there?"}
TOOL_LIST = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "A tool.",
            "parameters": {"required": [], **schema},
        },
    }
    for name, schema in TOOLS.items()
    if schema
]
CALLS: list[tuple[str, dict[str, Any]]] = [
    (
        "get_weather",
        {
            "city": 'Zürich "x" it\'s\n 1 < 2 {',
            "days": 3,
            "options": {"a": [1, 2.5, "</b>"], "b": True},
        },
    ),
    ("get_time", {"zone": "UTC"}),
]


def published(assets: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of the templates in which the word "tool" stands, each text once."""
    seen = set()
    folder = assets / "chat-templates"
    for path in sorted(folder.rglob("*.jinja*")):
        text = path.read_text(encoding="utf-8")
        if "tool" in text and text not in seen:
            seen.add(text)
            yield str(path.relative_to(folder)), text
    cases = json.loads((folder / "hf-jinja" / "e2e-renderings.json").read_text(encoding="utf-8"))
    for name, text in _texts("", cases):
        if "tool" in text and text not in seen:
            seen.add(text)
            yield name, text


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        text = value.get("chat_template")
        if isinstance(text, str):
            yield name.strip("/"), text
        for key, inner in value.items():
            yield from _texts(f"{name}/{key}", inner)


@cache
def renderer(text: str) -> Render:
    """How a template's text is rendered here; compiled once, which takes most of the time."""
    template = ChatTemplate(
        text, bos_token="<BOS>", eos_token="<EOS>", clock=lambda: datetime(2026, 1, 1)
    )

    def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        asked = messages[-1]["role"] == "user"
        return template.render(messages, tools=tools or None, add_generation_prompt=asked)

    return render


def answer_of(render: Render, count: int) -> str | None:
    """The answer that a template writes for the first of the calls, as `answered`."""
    functions = [tool["function"] for tool in TOOL_LIST]
    return answered(render, CALLS[:count], functions)


def answered(
    render: Render,
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    functions: Sequence[Any],
) -> str | None:
    """The answer that a template writes for calls, without the end of its turn; None where it
    refuses them or omits some of them."""
    tools = [{"type": "function", "function": function} for function in functions]
    tool_calls = [
        {"id": f"call{at:05}", "type": "function", "function": {"name": name, "arguments": given}}
        for at, (name, given) in enumerate(calls)
    ]
    for content in ("", None):
        message = {"role": "assistant", "content": content, "tool_calls": tool_calls}
        try:
            text = render([USER, message], tools)
            said = render([USER, {"role": "assistant", "content": "Sunny."}], tools)
            prompt = render([USER], tools)
        except HeadraceError:
            continue
        start = max(_shared(text, prompt), _shared(text, said))
        marked = max(text.rfind(character, 0, start) for character in "<[")
        if marked >= 0 and not any(character in text[marked:start] for character in ">]\n"):
            start = marked
        end = len(text) - _shared(text[::-1], said[::-1])
        if ">" not in text[text.rfind("<", 0, end) : end]:
            end = text.find(">", end) + 1
        answer = text[start:end]
        return answer if all(name in answer for name, _ in calls) else None
    return None


def _shared(text: str, other: str) -> int:
    return next(
        (at for at, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]),
        min(len(text), len(other)),
    )
