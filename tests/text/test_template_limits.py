"""Templates that would not end, or would fill the memory, and those that may seem to."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_NAMESPACE, DEFAULT_TESTS
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace.errors import TemplateError
from headrace.text import ChatTemplate
from headrace.text.template_limits import MAX_NODES, MAX_SOURCE_BYTES, Budget, RenderLimits
from headrace.text.template_sandbox import (
    ACCOUNTED_GLOBALS,
    ACCOUNTED_TESTS,
    BUDGET,
    SandboxEnvironment,
)
from headrace.text.template_work import ACCOUNTED_FILTERS
from tests.text.test_chat_template import HI, noon

DOUBLE = (
    "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = GROW %}{% endfor %}"
)


def doubling(start: str, grow: str) -> str:
    return DOUBLE.replace("START", start).replace("GROW", grow)


BOMBS = {
    "times": "{{ 'x' * 10**9 }}",
    "times left": "{{ 10**9 * 'x' }}",
    "list times": "{% set l = [0] * 10**9 %}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "power of powers": "{% set n = 10 ** 1000 %}{{ n ** 1000 }}",
    "product of numbers": doubling("10 ** 1000", "ns.x * ns.x"),
    "sum of texts": doubling("'x'", "ns.x + ns.x"),
    "sum of lists": doubling("[1]", "ns.x + ns.x"),
    "joined texts": doubling("'x'", "ns.x ~ ns.x"),
    "nested list": doubling("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    "nested json": doubling("[1]", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "nested text": doubling("[1]", "[ns.x, ns.x]") + "{{ ns.x | string }}",
    "nested tilde": doubling("[1]", "[ns.x, ns.x]") + "{% set s = ns.x ~ '' %}",
    "nested format": doubling("[1]", "[ns.x, ns.x]") + "{% set s = '%s' % ns.x %}",
    "nested equal": (
        doubling("[1]", "[ns.x, ns.x]")
        + "{% set a = ns.x %}{% set ns.x = [1] %}"
        + doubling("[1]", "[ns.x, ns.x]")
        + "{{ a == ns.x }}"
    ),
    "nested key": doubling("(1, 2)", "(ns.x, ns.x)") + "{{ {ns.x: 1} }}",
    "nested test": doubling("[1]", "[ns.x, ns.x]") + "{{ [ns.x] is eq([ns.x]) }}",
    "set block": (
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}"
        "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}"
    ),
    "center": "{{ 'x'.center(10**9) }}",
    "center filter": "{{ 'x' | center(10**9) }}",
    "indent": "{{ ('x\n' * 1000) | indent(10**6) }}",
    "indent wide": "{{ ('x\n' * 100000) | indent(99999) }}",
    "indent text": "{{ ('x\n' * 100000) | indent('y' * 100000) }}",
    "json indent": "{{ [1, 2] | tojson(indent=10**9) }}",
    "json separators": "{{ ([1] * 100000) | tojson(separators=('x' * 100000, ':')) }}",
    "ljust": "{{ 'x'.ljust(10**9) }}",
    "zfill": "{{ 'x'.zfill(10**9) }}",
    "expandtabs": "{{ ('\t' * 100000).expandtabs(99999) }}",
    "replace": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "replace empty": "{{ ('x' * 100000).replace('', 'y' * 100000) }}",
    "replace filter": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "join": "{{ ('y' * 100000).join(['x'] * 100000) }}",
    "join filter": "{{ (['x'] * 100000) | join('y' * 100000) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'x' * 100000}) }}",
    "wordwrap": "{{ ('x ' * 100000) | wordwrap(1, wrapstring='y' * 100000) }}",
    "printf width": "{{ '%1000000000d' % 1 }}",
    "printf star": "{{ '%*d' % (10**9, 1) }}",
    "printf filter": "{{ '%1000000000d' | format(1) }}",
    "printf again": "{{ ('%(a)s' * 100000) % {'a': 'x' * 100000} }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 10**9) }}",
    "format again": "{{ ('{0}' * 100000).format('x' * 100000) }}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "nested loops": (
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
    ),
    "loops over texts": (
        "{% for a in 'x' * 100000 %}{% for b in 'x' * 100000 %}{% endfor %}{% endfor %}"
    ),
    "sums": "{% for a in range(100000) %}{% set x = range(100000) | sum %}{% endfor %}",
    "sum of lists in a filter": "{{ ([[1]] * 100000) | sum(start=[]) }}",
    "slices": (
        "{% set s = 'x' * 10**6 %}{% set ns = namespace(l=[]) %}"
        "{% for i in range(100000) %}{% set ns.l = ns.l + [s[1:]] %}{% endfor %}"
    ),
    "recursive macro": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}"
    ),
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "recursive loop": ("{% for a in range(1000) recursive %}{{ loop(range(1000)) }}{% endfor %}"),
    "output": "{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
    "constant output": "{% for a in range(100000) %}" + "x" * 1000 + "{% endfor %}",
    "batch": (
        "{% for a in range(100000) %}{% for b in [1] | batch(100000, 0) %}{% endfor %}{% endfor %}"
    ),
    "lipsum": "{{ lipsum(n=10**9) }}",
}


@pytest.mark.long
@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused(source: str) -> None:
    limits = RenderLimits(max_steps=300_000, max_chars=2_000_000)
    began = time.monotonic()
    with pytest.raises(TemplateError):
        ChatTemplate(source, limits=limits).render(HI)
    # Not a measurement: without the limits these take minutes, or all memory.
    assert time.monotonic() - began < 20


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.append(1) }}",
    "{{ dict.update(messages[0], {'role': 'x'}) }}",
    "{{ namespace.__init__ }}",
    "{{ namespace(_x=1) }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ raise_exception.__globals__ }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ self.__init__ }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_the_sandbox_holds(source: str) -> None:
    with suppress(TemplateError):
        assert ChatTemplate(source).render(HI) == ""
    with pytest.raises(TemplateError):
        ChatTemplate("{{ (render budget).charge }}").compile()


def test_the_clock_is_a_last_resort() -> None:
    now = iter(range(0, 10**6, 3))
    budget = Budget(RenderLimits(max_seconds=10), monotonic=lambda: float(next(now)))
    environment = SandboxEnvironment(noon, RenderLimits())
    template = environment.from_string("{% for i in range(90000) %}{% endfor %}")
    with pytest.raises(TemplateError, match="longer than 10 s"):
        template.render({BUDGET: budget})


def test_large_chats_are_well_within_the_limits() -> None:
    source = (
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim + '\n' }}"
        "{% if loop.last or m.content == messages[0].content %}!{% endif %}{% endfor %}"
    )
    chat = [{"role": "user", "content": "word " * 200} for _ in range(2000)]
    assert len(ChatTemplate(source).render(chat)) > 2_000_000
    one = [{"role": "user", "content": "word " * 800_000}]
    assert len(ChatTemplate(source).render(one)) > 3_000_000


def _plain_environment() -> ImmutableSandboxedEnvironment:
    """The environment transformers describes, with nothing bounded."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False, **options}
    )
    return environment


def test_bounding_changes_no_result(shared_assets: Path) -> None:
    path = shared_assets / "chat-templates" / "hf-jinja" / "unit-renderings.json"
    cases = json.loads(path.read_text(encoding="utf-8"))
    plain, bounded = _plain_environment(), SandboxEnvironment(noon, RenderLimits())
    compared = 0
    for name, case in cases.items():
        if "__js_function__" in json.dumps(case):
            continue
        expected = _outcome(plain, case["template"], case["context"])
        context = {**case["context"], BUDGET: Budget(RenderLimits())}
        got = _outcome(bounded, case["template"], context)
        if expected is not None:
            assert got == expected, name
            compared += 1
    assert compared > 120


FEATURES = [
    "{% for a in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{% for a in [3, 1] | sort if a > 1 %}{{ a }}{{ loop.revindex }}{% else %}none{% endfor %}",
    "{% for a in [] %}{% else %}empty{% endfor %}{% for a in nothing %}{% else %}none{% endfor %}",
    "{% for k, v in {'a': 1}.items() %}{{ k ~ v ~ none ~ [1] }}{% endfor %}",
    "{% for a in [[1, [2]], [3]] recursive %}{{ loop(a) if a is iterable else a }}{% endfor %}",
    "{{ 'a,b'.split(',') | map('upper') | join('-') }} {{ [1, 2] | sum }} {{ 'x' | center(5) }}",
    "{% filter upper %}abc{{ 1 }}{% endfilter %}{% set s %}x{{ 2 }}{% endset %}{{ s * 3 }}",
    "{{ '%s-%05.2f' % ('a', 2.5) }} {{ '{:>5}|{a}'.format(1, a=2) }} {{ 7 % 3 }} {{ 2 ** 10 }}",
    "{{ 'abcdef'[1:4] }}{{ [1, 2, 3][::-1] }}{{ {'a': {'b': 1}}['a'].b }}{{ (1, 2) == (1, 2) }}",
    "{{ 'a\nb' | indent(2) }}{{ 'a b c' | wordwrap(3) }}{{ [1, 'é'] | tojson(indent=1) }}",
    "{% macro m(x, y=2) %}{{ x }}{{ y }}{{ caller() }}{% endmacro %}{% call m(1) %}c{% endcall %}",
    "{% set n = namespace(a=1) %}{% for i in [3, 4] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
    "{{ [{'a': 2}, {'a': 1}] | sort(attribute='a') | map(attribute='a') | list }}",
    "{{ [1, 2, 3] | select('odd') | list }}{{ [{'r': 1}] | selectattr('r', 'equalto', 1) | list }}",
    "{{ 1752148800 | string }}{{ '{}'.format(1752148800) }}{{ '%d' % 1752148800 }}{{ 10**12 * 7 }}",
    "{{ messages | default('d') }}{{ 'a' in 'abc' }}{{ 1 < 2 < 3 }}{{ x is defined }}",
]


@pytest.mark.parametrize("source", FEATURES)
def test_bounding_changes_no_feature(source: str) -> None:
    expected = _plain_environment().from_string(source).render()
    bounded = SandboxEnvironment(noon, RenderLimits()).from_string(source)
    assert bounded.render({BUDGET: Budget(RenderLimits())}) == expected


def _outcome(environment: jinja2.Environment, source: str, context: dict[str, Any]) -> str | None:
    """What a template prints, None where it raises."""
    try:
        return environment.from_string(source).render(context)
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, TemplateError):
        return None


def test_what_a_template_may_use_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Jinja with something new fails here first: decide what it costs, then enter it."""
    known = (
        (DEFAULT_FILTERS, ACCOUNTED_FILTERS, {"urlize"}),
        (DEFAULT_TESTS, ACCOUNTED_TESTS, set()),
        (DEFAULT_NAMESPACE, ACCOUNTED_GLOBALS, {"lipsum"}),
    )
    for jinja_has, accounted, left_out in known:
        assert set(jinja_has) - accounted == left_out
        assert accounted <= {*jinja_has, "tojson"}
    monkeypatch.setitem(DEFAULT_FILTERS, "newfilter", str)
    monkeypatch.setitem(DEFAULT_TESTS, "newtest", bool)
    monkeypatch.setitem(DEFAULT_NAMESPACE, "newglobal", str)
    environment = SandboxEnvironment(datetime.now, RenderLimits())
    assert "newfilter" not in environment.filters
    assert "newtest" not in environment.tests
    assert "newglobal" not in environment.globals
    own = {name for name in environment.filters if not name.isidentifier()}
    assert set(environment.filters) - own == ACCOUNTED_FILTERS
    assert set(environment.tests) == ACCOUNTED_TESTS
    assert set(environment.globals) == ACCOUNTED_GLOBALS | {"raise_exception", "strftime_now"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x" * (MAX_SOURCE_BYTES + 1), f"{MAX_SOURCE_BYTES + 1} bytes; at most {MAX_SOURCE_BYTES}"),
        ("é" * (MAX_SOURCE_BYTES // 2 + 1), f"{MAX_SOURCE_BYTES + 2} bytes"),
        pytest.param(
            "{{1}}" * MAX_NODES,
            f"expressions and statements; at most {MAX_NODES}",
            marks=pytest.mark.long,
        ),
        ("{{[" + "1," * MAX_NODES + "]}}", f"at most {MAX_NODES}"),
        ("{% for a in b %}" * 25 + "{% endfor %}" * 25, "too many statically nested blocks"),
        ("{% if a %}" * 101 + "{% endif %}" * 101, "too many levels of indentation"),
        ("{{ " + "(" * 50_000, "RecursionError"),
    ],
    ids=["bytes", "utf-8", "prints", "list", "loops", "ifs", "brackets"],
)
def test_templates_too_large_to_compile(source: str, said: str) -> None:
    template = ChatTemplate(source)
    for _ in range(2):
        with pytest.raises(TemplateError) as caught:
            template.compile()
        assert "chat template 'default'" in str(caught.value)
        assert said in str(caught.value)


def test_a_long_text_in_a_template_is_no_matter() -> None:
    text = "x" * (MAX_SOURCE_BYTES - 100)
    assert ChatTemplate(text + "{{ messages[0].content }}").render(HI) == text + "Hi"


def test_names_set_in_an_unlucky_order_are_followed_once() -> None:
    """Each of 800 is set to the one below it; going round until nothing changes took minutes."""
    sets = [f"{{% set n{i + 1} = n{i} %}}" for i in reversed(range(800))]
    source = "".join(sets) + "{% for p in n800 %}{% endfor %}{% set n0 = m.content %}"
    assert ChatTemplate(source).traits().takes_parts
    assert not ChatTemplate(source.replace("m.content", "m.other")).traits().takes_parts
