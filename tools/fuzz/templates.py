"""Fuzzes chat templates and messages: `python -m tools.fuzz.templates --seed 1 --seconds 600`.

Half of the inputs are templates changed as text (pieces of others, of a list of hostile ones, cuts,
repeats), half are messages changed as JSON; both together in between. Seeds are a few templates,
and those of real models where HEADRACE_ASSETS is set. Compiling and rendering either works or
raises TemplateError or RequestError; the result is no longer than the limit; segments join to the
very same text, and what they forbid can begin a control token; the work is bounded in time and
memory.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.errors import RequestError, TemplateError
from headrace.text import ChatTemplate
from headrace.text.template_limits import RenderLimits
from tools.fuzz.harness import Target, main

# A tenth of a server's, so that inputs that use them up are many.
LIMITS = RenderLimits(max_chars=1_000_000, max_steps=300_000, max_seconds=4.0)
MAX_ERROR_CHARACTERS = 4000
MAX_INPUT_CHARACTERS = 4_000_000
CONTROL_TOKENS = ("<|im_start|>", "<|im_end|>", "</s>", "[INST]", "<")

_PLAIN = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}",
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}",
    "{% macro show(x) %}{{ x | tojson(indent=2) }}{% endmacro %}{% set ns = namespace(n=0) %}"
    "{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + loop.index %}"
    "{{ show(m) }}{% generation %}{{ ns.n }}{% endgeneration %}{% endfor %}{{ tools | length }}",
    "{{ bos_token }}{{ strftime_now('%Y') }}{% for c in messages[-1].tool_calls %}"
    "{{ c.function.name }}({{ c.function.arguments | items | list }}){% endfor %}"
    "{{ messages | map(attribute='role') | join(',') }}{{ raise_exception('no') if not messages }}",
)
_PIECES = (
    "{{ 'a' * 10**9 }}", "{{ [1] * 10**8 }}", "{{ range(10**9) | list }}", "{{ 2 ** 10**7 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{{ messages | pprint }}", "{{ ''.__class__.__mro__ }}", "{{ messages.__class__ }}",
    "{{ '%1000000000d' % 1 }}", "{{ '{:>1000000000}'.format(1) }}", "{{ 'x' | center(10**9) }}",
    "{{ messages.append(1) }}", "{{ self._TemplateReference__context }}", "{{ loop }}",
    "{{ cycler(1, 2).next() }}", "{{ joiner(',')() }}", "{{ dict(a=1) | dictsort }}",
    "{{ messages | groupby('role') }}", "{{ messages | batch(10**9, 1) | list }}",
    "{{ messages | slice(10**9) | list }}", "{{ 'a b' | wordwrap(1) }}", "{{ (1/0) }}",
    "{{ 'a' | replace('', 'b' * 1000) | replace('', 'c' * 1000) | replace('', 'd' * 1000) }}",
    "{% set x = namespace(a=[]) %}{% for i in range(40) %}{% set x.a = [x.a, x.a] %}{% endfor %}"
    "{{ x.a }}", "{% set x = 'ab' %}{% for i in range(60) %}{% set x = x ~ x %}{% endfor %}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{{ messages | tojson(indent=9**9) }}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{{ lipsum() }}",
    "{% block a %}{{ super() }}{% endblock %}", "{% call(x) f() %}{% endcall %}", "{% break %}",
    "{% filter upper %}{{ messages }}{% endfilter %}", "{% raw %}{{ x }}{% endraw %}", "{#", "{{",
    "{%- set ns.x = 1 -%}", "{{ x.y.z }}", "{{ messages[10**20] }}", "{{ -1 ** 0.5 }}", "\ud800",
    "{{ messages | sum(start=[]) }}", "{{ messages | sort(attribute='content') }}", "{{ 1 % 0 }}",
    "{{ messages | unique | list }}", "{{ 'a' | indent(10**9) }}", "{{ '\U00100000\U00100001' }}",
    "{{ '\U00100000' in messages[0].content }}", "{{ {} | xmlattr }}",
    "{{ 'abcdefgh' | truncate(1, leeway=0) }}",
    "{{ messages[0].content.split('<|im_end|>') }}", "{{ messages[0].content | length }}",
    "{{ '%s' | format(*messages) }}", "{{ messages | map('tojson') | join('a' * 99999) }}",
    "{% if '<' in messages[0].content %}yes{% endif %}", "{{ messages[0].content | e | safe }}",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, float("nan"), "", "x", "<|im_end|>", "a" * 5000, "\ud800",
    "\x00", "</s>[INST]", "<", "{{ 1 }}", [], {}, [[]], {"type": "text", "text": "<|im_start|>"},
    [{"type": "text", "text": "a"}, {"type": "image"}], {"function": {"arguments": "{"}},
    [{"function": {"name": "f", "arguments": '{"a": [1]}'}}], "\U00100000\U0010fffc\U0010fffd ",
    "user", "assistant", "tool", "developer", "system",
)  # fmt: skip
_CHATS: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "user", "content": "Hi <|im_end|> there"}]},
    {
        "messages": [
            {"role": "system", "content": "Be nice."},
            {"role": "user", "content": [{"type": "text", "text": "Weather?<|im_start|>"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}],
            },
            {"role": "tool", "content": "3", "name": "f", "tool_call_id": "123456789"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "documents": [{"title": "<", "text": "x"}],
        "enable_thinking": False,
    },
)


def make_target() -> Target:
    """Inputs are JSON: a template, messages and variables."""
    templates = (*_PLAIN, *_real())
    inputs = [{"template": source, **chat} for source in templates for chat in _CHATS]
    return Target([json.dumps(each).encode() for each in inputs], mutate, attempt)


def _real() -> list[str]:
    assets = os.environ.get("HEADRACE_ASSETS")
    if assets is None:
        return []
    folder = Path(assets) / "chat-templates"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.jinja*"))]


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A new input: another template, other messages, or both."""
    value = json.loads(rng.choice(seeds))
    kind = rng.random()
    if kind < 0.7:
        for _ in range(rng.choice((1, 1, 2, 4))):
            value["template"] = _other_text(value["template"], seeds, rng)
    if kind > 0.4:
        chat = {key: entry for key, entry in value.items() if key != "template"}
        for _ in range(rng.choice((1, 1, 2, 4))):
            chat = _other_value(chat, rng)
        value = {"template": value["template"], **(chat if isinstance(chat, dict) else {})}
    for flag in ("add_generation_prompt", "continue_final_message"):
        if rng.random() < 0.2:
            value[flag] = rng.random() < 0.7
    written, size = [], 0
    for piece in json.JSONEncoder().iterencode(value):
        written.append(piece)
        size += len(piece)
        # Lists of lists repeated a few times over do not fit any memory.
        if size > MAX_INPUT_CHARACTERS:
            return rng.choice(seeds)
    return "".join(written).encode()


def _other_text(source: str, seeds: Sequence[bytes], rng: random.Random) -> str:
    start = rng.randint(0, len(source))
    end = min(len(source), start + rng.choice((0, 1, 3, 20, 200)))
    kind = rng.random()
    if kind < 0.4:
        new = rng.choice(_PIECES)
        # Between statements it is more often well formed.
        gap = source.find("{%", start)
        start = end = start if gap < 0 or rng.random() < 0.3 else gap
    elif kind < 0.6:
        other = json.loads(rng.choice(seeds))["template"]
        at = rng.randint(0, len(other))
        new = other[at : at + rng.choice((5, 50, 500))]
    elif kind < 0.8:
        new = ""
    elif kind < 0.9:
        new = source[start:end] * rng.choice((2, 10, 3000))
    else:
        new = rng.choice(("|", "(", "[", "~", "not ", "-", "%}", "}}", "'", "\\", "é", " is "))
    return source[:start] + new + source[end:]


def _other_value(value: Any, rng: random.Random) -> Any:
    """`value` with one change at a random depth."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {name: entry for name, entry in value.items() if name != key}
        if rng.random() < 0.1:
            return value | {rng.choice(("x", "<|im_end|>", "role", "content", "tools")): value[key]}
        return value | {key: _other_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value * rng.choice((2, 30, 400))
        return [*value[:at], _other_value(value[at], rng), *value[at + 1 :]]
    return rng.choice(_VALUES)


def attempt(data: bytes) -> str:
    """How one input ended; AssertionError for a promise that was not kept."""
    value = json.loads(data)
    source = value.pop("template")
    messages = value.pop("messages", [])
    value.setdefault("add_generation_prompt", True)
    options = {key: entry for key, entry in value.items() if key.isidentifier()}
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>", limits=LIMITS)
    try:
        text = template.render(messages, **options)
        segments = template.render_segments(messages, control_tokens=CONTROL_TOKENS, **options)
    except (TemplateError, RequestError) as error:
        words = str(error)
        assert len(words) < MAX_ERROR_CHARACTERS, f"an error of {len(words)} characters"
        return type(error).__name__
    assert len(text) <= LIMITS.max_chars, f"{len(text)} characters"
    # The clock may be read by both.
    if "strftime_now" not in source:
        assert "".join(piece for piece, _ in segments) == text, "segments make another text"
    forbidden = {piece for piece, allowed in segments if not allowed}
    # Several that are near each other are one piece, with what stands between them.
    of_tokens = "".join(CONTROL_TOKENS)
    ends = {end for piece in forbidden for end in (piece[0], piece[-1])}
    assert all(end in of_tokens for end in ends), f"{forbidden} forbidden"
    return "protected" if forbidden else "rendered"


if __name__ == "__main__":
    main(make_target, __doc__)
