"""Grammars that were made to do harm, by name: the fields of a request each.

Run as a module it tries those named on its command line in this process and prints what each took;
tests/structured/test_hostile.py runs it where it may be ended.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from headrace.engine.grammars.constraint import Constraint
from headrace.errors import RequestError
from headrace.structured.request import grammar_of
from tools.structured.language import DeadEndError, Language, LimitError

_STEPS = 60
_FORCED_TOKENS = 16
"""That are asked for at a step, as the engine does."""


def _schema(**keywords: Any) -> dict[str, Any]:
    return {"guided_json": keywords}


def _lark(text: str) -> dict[str, Any]:
    return {"guided_grammar": text}


def _sequence(*elements: dict[str, Any]) -> dict[str, Any]:
    tag = {"type": "sequence", "elements": list(elements)}
    return {"response_format": {"type": "structural_tag", "format": tag}}


def _chain(count: int, way: str) -> dict[str, Any]:
    """Definitions each of which refers to the next one twice."""
    definitions: dict[str, Any] = {
        f"d{index}": {way: [{"$ref": f"#/$defs/d{index + 1}"}] * 2} for index in range(count)
    }
    return _schema(**{"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {}}})


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return {"guided_json": schema}


def _at_once(count: int) -> str:
    """Rules of which each fits wherever each other one does, behind a beginning."""
    rules = "".join(f"x{index}: s | /[a-z]/ |\n" for index in range(count))
    ways = " | ".join(f"s x{index} s" for index in range(count))
    return f'start: "begin" s\ns: {ways} | /[a-z]/\n{rules}'


_PAIRS = {
    f"d{index}": {
        "type": "array", "prefixItems": [{"$ref": f"#/$defs/d{index + 1}"}] * 2, "minItems": 2,
        "items": False,
    }
    for index in range(40)
}  # fmt: skip
_REPEAT = {"type": "regex", "pattern": "a{16000}"}
_CONSTANTS = {"type": "array", "items": {"const": "abcdefghij"}, "minItems": 1000, "maxItems": 1000}
_RULES = {"type": "grammar", "grammar": 'root ::= "a"{1000}'}
_LISTS = [{"type": "array", "items": {"$ref": "#"}, "maxItems": 9 + each} for each in range(200)]

_ALTERNATIVES = [
    {"anyOf": [{"type": "object", "properties": {f"p{i}{j}": {}}} for j in range(3)]}
    for i in range(12)
]

CASES: dict[str, dict[str, Any]] = {
    "alternatives that multiply": _schema(allOf=_ALTERNATIVES),
    "patterns that have to match at once": _schema(
        allOf=[{"pattern": f".*a.{{{count}}}b"} for count in range(10, 30)]
    ),
    "a text of 2^31 characters": _schema(type="string", minLength=2**31 - 1),
    "an expression of a million characters": _schema(type="string", pattern="^a{1000000}$"),
    "nested repeats": _schema(type="string", pattern="^((a{1,100}){1,100}){1,100}$"),
    "remainders": _schema(type="integer", multipleOf=123456789),
    "remainders that meet": _schema(allOf=[{"multipleOf": 997}, {"multipleOf": 991}]),
    "multiples in a range": _schema(type="integer", multipleOf=9973, minimum=123456789),
    "20,000 required": _schema(type="object", required=[f"r{i}" for i in range(20_000)]),
    "expressions of names": _schema(patternProperties={f"^a.*{i}$": {} for i in range(60)}),
    "catastrophic names": _schema(patternProperties={"(a+)+$": {}, "^(a|aa)+$": {}}),
    "10 MB of values": _schema(enum=["x" * 1000 + str(i) for i in range(10_000)]),
    "400 KB of values": _schema(enum=["x" * 30 + str(i) for i in range(9000)]),
    "deep": _nested(1000),
    "references in a circle": _schema(
        **{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "references that double, all": _chain(40, "allOf"),
    "references that double, any": _chain(40, "anyOf"),
    "references that double, one": _chain(40, "oneOf"),
    "a reference to a server": _schema(**{"$ref": "http://127.0.0.1:9/schema"}),
    "a reference to a file": _schema(**{"$ref": "file:///etc/passwd"}),
    "options at every depth": _schema(
        properties={"a": {"x-guidance": {"lenient": True}, "items": {"x-guidance": {}}}}
    ),
    "not a number": {"guided_json": '{"const": NaN}'},
    "a number beyond doubles": {"guided_json": '{"const": 1e400}'},
    "a number of 5,000 digits": _schema(maximum=10**5000),
    "half a character": _schema(const="\ud800"),
    "half a character in a name": _schema(properties={"\udfff": {}}),
    "a keyword twice": {"guided_json": '{"type": "integer", "type": "string"}'},
    "2^31 repeats": {"guided_regex": "(a{2147483647}){2147483647}"},
    "expressions with many states": {"guided_regex": "(.*a.{15}){3}"},
    "bytes that are not UTF-8": {"guided_regex": "(?s-u:.)*"},
    "choices that begin alike": {"guided_choice": ["a" * i for i in range(1, 400)]},
    "a file imported": _lark("%import .secret.X\nstart: X"),
    "a file included": _lark('%include "/etc/passwd"\nstart: "a"'),
    "a schema within": _lark('start: %json {"$ref": "file:///etc/passwd"}'),
    "a lenient schema within": _lark('start: %json {"x-guidance": {"lenient": true}}'),
    "options": _lark('%llguidance {"allow_invalid_utf8": true}\nstart: "a"'),
    "expressions that meet": _lark("start: X\nX: /(.*a.{15}){3}/ & /(.*b.{15}){3}/"),
    "a million repeats": _lark('start: "a"{1000000}'),
    "a billion repeats": _lark('start: (("a"{1000}){1000}){1000}'),
    "an ambiguous rule": _lark('start: s\ns: s s s | s s | "a" | '),
    "a lazy lexeme": _lark('start: x "end"\nx[lazy]: /(.|\\n)*/'),
    "a token by its name": _lark("start: <|im_end|>"),
    "a rule that begins with itself": {"grammar": 'root ::= root "a" | "b"'},
    "a rule that is itself": {"grammar": "root ::= root"},
    "rules in a circle": {"grammar": "root ::= a\na ::= b | root\nb ::= a"},
    "2^31 repeats of a rule": {"grammar": 'root ::= "a"{2147483648}'},
    "letters in every way": _lark("start: s\ns: s s s | s s | /[a-zA-Z0-9 ]/"),
    "rules that all fit": _lark(_at_once(60)),
    "lists that all fit": _schema(anyOf=[{"const": 1}, *_LISTS]),
    "lists of pairs of lists": _schema(
        **{"$ref": "#/$defs/d0", "$defs": {**_PAIRS, "d40": {"const": 1}}}
    ),
    "one long choice": {"guided_choice": ["abcdefghij" * 10_000]},
    "one long constant": _schema(const="abcdefghij" * 10_000),
    "a long repeat": {"guided_regex": "[ab](abcdefghij){10000}"},
    "10,000 constants": _schema(items={"const": "abcdefghij"}, minItems=10_000),
    "a text within the limit": {"guided_choice": ["abcdefghij" * 1600]},
    "a tag of 1,990 repeats": _sequence(*[_REPEAT] * 1990),
    "a tag of 400 lists of constants": _sequence(
        *[{"type": "json_schema", "json_schema": _CONSTANTS}] * 400
    ),
    "a tag of rules that repeat": _sequence(*[_RULES] * 1500),
    "a tag within the limit": _sequence(_REPEAT, {"type": "regex", "pattern": "[ab]"}, _REPEAT),
    "an ambiguous repeat": {"grammar": 'root ::= (x x x)* x*\nx ::= "a" | "a" x | ""'},
}


def tried(fields: dict[str, Any]) -> dict[str, Any]:
    """How it ended, CPU seconds of compiling, and of the slowest of some steps: what is
    forced there, the mask, and its token."""
    begun_s = time.process_time()
    slowest_s = 0.0
    compiled_s = None
    try:
        grammar = grammar_of(fields)
        assert grammar is not None
        language = Language(grammar)
        compiled_s = time.process_time() - begun_s
        ended = "compiled"
        matcher, rng = language.matcher(), random.Random(0)
        constraint = Constraint(
            language.compiled, num_prompt=0, grammar_end_id=256, vocab_size=256, end_ids=()
        )
        token_ids: list[int] = []
        for _ in range(_STEPS):
            step_s = time.process_time()
            constraint.forced(token_ids, _FORCED_TOKENS)
            ids = [token_id for token_id, may in enumerate(language.allowed(matcher)) if may]
            token_ids.append(rng.choice(ids))
            goes_on = ids != [256] and matcher.consume_token(token_ids[-1])
            slowest_s = max(slowest_s, time.process_time() - step_s)
            if not goes_on:
                break
    except RequestError as error:
        ended = f"refused: {error.code}"
        assert error.param
    except (LimitError, DeadEndError) as error:
        ended = f"gave up: {error}"
    took_s = compiled_s if compiled_s is not None else time.process_time() - begun_s
    return {"ended": ended, "compile_s": took_s, "mask_s": slowest_s}


def _peak_mib() -> int:
    """Of this program. (What `getrusage` says begins with the memory of whoever started it.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) >> 10 for line in status.splitlines() if "VmHWM" in line)


def main(names: list[str]) -> None:
    """Prints a line of JSON for each case, with the peak of memory so far."""
    for name in names:
        line = {"name": name, **tried(CASES[name]), "peak_mib": _peak_mib()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
