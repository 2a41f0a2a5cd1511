"""The formats of calls and of reasoning, derived from what a chat template writes.

A template is shown a conversation whose answer calls tools with names and arguments that occur
nowhere else. Where they stand in its text says which syntax it is, and what stands between them,
once for one call and once for two, which marks it has. A format is returned only if it reads the
template's own calls back as they were: a template that writes them in a way that cannot be read
has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from headrace.answer_formats.answer_writer import SPACE
from headrace.answer_formats.call_syntax import (
    AnswerFormat,
    CallFormat,
    ReasoningFormat,
    ThinkTags,
)
from headrace.answer_formats.deltas import joined
from headrace.answer_formats.derivation.derived_layout import layouts_as_written
from headrace.answer_formats.derivation.derived_syntax import (
    CALLS,
    CANDIDATES,
    IDS,
    PIECES,
    RenderedCalls,
    common_start,
    shared_end,
)
from headrace.answer_formats.parser import AnswerParser

Messages: TypeAlias = Sequence[Mapping[str, Any]]
Render: TypeAlias = Callable[[Messages, Messages], str]
"""The text that a template makes of messages and tools; where the last message is the user's, with
the prompt that begins an answer. It may raise whatever it likes for what a template refuses."""

_TYPES = {"lantern": "string", "anchor": "integer", "meadow": "object"}
_SCHEMAS: dict[str, Mapping[str, Any]] = {
    name: {
        "type": "object",
        "properties": {
            key: {"type": _TYPES.get(key, "string"), "description": "any"} for key in arguments
        },
        "required": list(arguments),
    }
    for name, arguments in CALLS
}
_TOOLS = [
    {"type": "function", "function": {"name": name, "description": "any", "parameters": schema}}
    for name, schema in _SCHEMAS.items()
]
_USER = {"role": "user", "content": "Plain quartz question."}
_SAID = "Marble juniper reply."
_THOUGHT = "Cobalt walnut thought."

_MARK = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")


def derive_format(render: Render) -> CallFormat | None:
    """The format in which a template writes calls; None where it writes none that can be read."""
    written = _written(render)
    if written is None:
        return None
    for candidates in CANDIDATES:
        for syntax in candidates(written):
            mark = syntax.begins[0] if syntax.begins else ""
            opened = not written.one.lstrip().startswith(mark) and written.prompt.endswith(mark)
            format = CallFormat(name="derived", syntax=(syntax,), opened_by=mark if opened else "")
            rest = {_read(format, text, calls) for text, calls in written.texts}
            if rest <= {"", *written.ends}:
                dropped = tuple(end for end in written.ends if end in rest)
                format = replace(format, dropped=dropped)
                return replace(format, layouts=layouts_as_written(format, written))
    return None


def derive_reasoning(render: Render) -> ReasoningFormat | None:
    """The format in which a template writes the reasoning of an answer; None where it omits it."""
    answer = {"role": "assistant", "content": _SAID, "reasoning_content": _THOUGHT}
    text, prompt = _rendered(render, [_USER, answer], []), _rendered(render, [_USER], [])
    if text is None or prompt is None:
        return None
    before, thought, after = text.partition(_THOUGHT)
    between, said, _ = after.partition(_SAID)
    start = common_start(before, prompt)
    last = _MARK.findall(before)
    begin = before[start:].strip(SPACE) or (last[-1] if last else "")
    end, *rest = PIECES.split(between.strip(SPACE))
    if not (thought and said and begin[:1] in ("<", "[") and _MARK.fullmatch(end)):
        return None
    format = ReasoningFormat(
        name="derived", tags=ThinkTags(begin=begin, end=end), dropped=tuple(filter(None, rest))
    )
    parser = AnswerParser(AnswerFormat(reasoning=format))
    written = before[before.rfind(begin) :] + thought + after
    read = joined([*parser.feed(written), *parser.finish()])
    return format if read.reasoning == _THOUGHT and read.content.startswith(_SAID) else None


def _rendered(render: Render, messages: Messages, tools: Messages) -> str | None:
    """What a template writes; None where it refuses. It is a program of strangers, which refuses
    what it does not know with any error at all."""
    try:
        return render(messages, tools)
    except Exception:
        return None


def _written(render: Render) -> RenderedCalls | None:
    """What the template writes; None where no call is in it."""
    said = {"role": "assistant", "content": _SAID}
    prompt, plain = _rendered(render, [_USER], _TOOLS), _rendered(render, [_USER, said], _TOOLS)
    if prompt is None or plain is None:
        return None
    answers: list[str] = []
    for count in (1, 2):
        calls = [
            {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": dict(arguments)},
            }
            for id, (name, arguments) in zip(IDS[:count], CALLS, strict=False)
        ]
        text = None
        for content in ("", None):
            answer = {"role": "assistant", "content": content, "tool_calls": calls}
            text = _rendered(render, [_USER, answer], _TOOLS)
            if text is not None:
                break
        answers.append(_answer_of(text or "", prompt, plain))
    one, two = answers
    if CALLS[0][0] not in one:
        return None
    return RenderedCalls(one, two if CALLS[1][0] in two else "", prompt)


def _answer_of(text: str, prompt: str, plain: str) -> str:
    """The part of a text that is the answer: not what it shares with the text of another answer."""
    start = max(common_start(text, known) for known in (prompt, plain))
    tail = len(shared_end(text, plain))
    end = len(text) - tail
    opened = max(text.rfind("<", start, end), text.rfind("[", start, end))
    if opened >= 0 and not any(character in text[opened:end] for character in ">]\n"):
        closed = min(
            (at for at in (text.find(">", end), text.find("]", end)) if at >= 0), default=-1
        )
        end = closed + 1 or end
    return text[start:end]


def _read(format: CallFormat, text: str, count: int) -> str | None:
    """The content beside a template's calls; None if they are not read as they were given to it."""
    parser = AnswerParser(AnswerFormat(format), tools=_SCHEMAS)
    answer = joined([*parser.feed(text), *parser.finish()])
    if [(call.name, call.fault) for call in answer.calls] != [
        (name, "") for name, _ in CALLS[:count]
    ]:
        return None
    arguments = [json.loads(call.arguments) for call in answer.calls]
    if arguments != [arguments for _, arguments in CALLS[:count]]:
        return None
    return answer.content.strip(SPACE)
