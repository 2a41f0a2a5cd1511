"""Fuzzes grammars of answers: `python -m tools.fuzz.structured --seed 1 --seconds 600`.

An input is a JSON schema, a regular expression or a GBNF grammar drawn at random. It is refused by
a RequestError, or it has the same texts as its judge says: texts drawn from its masks are judged by
jsonschema-rs, Python's `re` or an Earley parser, and so are texts near them, in both directions. A
text that the judge refuses and the masks let pass is a finding; one that the judge takes and the
masks do not is a finding too, unless it departs as docs/schema_keywords.md says.
"""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.errors import RequestError
from headrace.structured.json_schema.bounds import MOST
from headrace.structured.request import grammar_of
from tools.fuzz.harness import Target, main
from tools.structured import random_grammars, random_schemas
from tools.structured.gbnf import Gbnf
from tools.structured.language import DeadEndError, Language, LimitError
from tools.structured.schema_judge import NotStrictError, RepeatedError, SchemaJudge, strict_json
from tools.structured.spelling import OTHER, cause

_WALKS = 4
_NEAR = 3
_MOST_BYTES = {"schema": 60, "regex": 60, "gbnf": 15}
_SEARCH = 2000


class WrongAnswerError(AssertionError):
    """The masks and the judge disagree."""


def make_target() -> Target:
    """An input is JSON: a kind, a seed for all chance in trying it, and the grammar."""
    return Target([b"{}"], mutate, attempt)


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """An input drawn anew."""
    kind = rng.choice(("schema", "schema", "regex", "gbnf"))
    drawn: Any
    if kind == "schema":
        drawn = random_schemas.draw(rng)
    elif kind == "regex":
        drawn = random_grammars.expression(rng).text
    else:
        drawn = random_grammars.gbnf(rng)
    return json.dumps({"kind": kind, "seed": rng.getrandbits(32), "grammar": drawn}).encode()


def attempt(data: bytes) -> str:
    """How an input ended. Raises WrongAnswerError."""
    value = json.loads(data)
    if not isinstance(value, dict) or "kind" not in value:
        return "empty"
    kind: str = value["kind"]
    grammar = value["grammar"]
    field = {"schema": "guided_json", "regex": "guided_regex", "gbnf": "grammar"}[kind]
    rng = random.Random(value["seed"])
    try:
        constraint = grammar_of({field: grammar})
        assert constraint is not None
        language = Language(constraint)
    except RequestError as error:
        return f"{kind} {error.code}"
    try:
        _TRY[kind](grammar, language, rng)
    except LimitError:
        return f"{kind} limit of a step"
    except DeadEndError:
        if kind == "gbnf":
            return "gbnf rule without a text"
        raise
    return kind


def _walks(kind: str, language: Language, rng: random.Random) -> Iterator[str]:
    for _ in range(_WALKS):
        written = language.walk(rng, _MOST_BYTES[kind])
        if written is not None:
            yield written.decode()


def _try_schema(schema: Any, language: Language, rng: random.Random) -> None:
    try:
        judge = SchemaJudge(schema)
    except ValueError:
        return  # not a schema by its meta-schema: what it should mean nobody says
    for text in _walks("schema", language, rng):
        try:
            value = strict_json(text)
        except (RepeatedError, OverflowError):
            continue  # a name outside `properties` twice, or a number beyond doubles
        except NotStrictError as error:
            raise WrongAnswerError(f"not JSON: {error}") from None
        if not judge.accepts(value):
            raise WrongAnswerError(f"accepted though invalid: {text}")
        for _ in range(_NEAR):
            near = random_schemas.nearby(value, rng)
            if judge.accepts(near):
                if _departs(language, schema, near):
                    raise WrongAnswerError(f"refused though valid: {json.dumps(near)}")
            elif language.has(json.dumps(near, separators=(",", ":"), ensure_ascii=False)):
                raise WrongAnswerError(f"accepted though invalid: {json.dumps(near)}")


def _departs(language: Language, schema: Any, value: Any) -> bool:
    """Whether a valid value is refused in a way that docs/schema_keywords.md does not name."""
    written = json.dumps(value)
    if "\\u00" in written or "\\ud" in written:
        return False  # characters that JSON can only escape
    if "multipleOf" in json.dumps(schema) or _largest(value) > MOST:
        return False
    return cause(language, value, _SEARCH) == OTHER


def _largest(value: Any) -> float:
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return max(map(_largest, inner), default=0)
    return abs(value) if isinstance(value, (int, float)) else 0


def _try_regex(pattern: str, language: Language, rng: random.Random) -> None:
    compiled = re.compile(pattern)
    for text in _walks("regex", language, rng):
        for each in (text, *random_grammars.several(text, rng, _NEAR)):
            if any(unicodedata.category(character) == "Cn" for character in each):
                continue  # assigned in a newer Unicode, perhaps
            _agree(language.has(each), compiled.fullmatch(each) is not None, each)


def _try_gbnf(text: str, language: Language, rng: random.Random) -> None:
    """Of several texts that may come next the longest is read and no way back is found, so that
    some texts of a grammar are refused; docs/schema_keywords.md says so."""
    judge = Gbnf(text)
    for each in _walks("gbnf", language, rng):
        for near in (each, *random_grammars.several(each, rng, _NEAR)):
            if language.has(near) and not judge.has(near):
                _agree(True, False, near)


def _agree(taken: bool, valid: bool, text: str) -> None:
    if taken != valid:
        raise WrongAnswerError(f"{'accepted' if taken else 'refused'} wrongly: {text!r}")


_TRY = {"schema": _try_schema, "regex": _try_regex, "gbnf": _try_gbnf}


if __name__ == "__main__":
    main(make_target, __doc__, memory_mib=2048)
