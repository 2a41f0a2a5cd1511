"""docs/errors.md: every code of the sources with its status, and only messages that there are."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest

from headrace import errors
from headrace.server.api_error import MODEL_NOT_FOUND
from tests.docs.pages import SOURCE, page, part, rows

PAGE = page("errors.md")
# A RequestError is a 400, but for this one; `unavailable` is a 503.
NOT_FOUND = {MODEL_NOT_FOUND: 404}

# The gateway's codes are its own, and stand in docs/gateway.md.
ELSEWHERE = ("gateway", "protocol/dialects")


# A constant of a module that is a text: `NOT_FOUND = "not_found"`.
TEXT_CONSTANT = re.compile(r'^(\w+) = "([^"\\]*)"$', re.MULTILINE)


@cache
def files() -> tuple[Path, ...]:
    elsewhere = [SOURCE / folder for folder in ELSEWHERE]
    return tuple(
        file
        for file in sorted(SOURCE.rglob("*.py"))
        if not any(file.is_relative_to(folder) for folder in elsewhere)
    )


@cache
def nodes() -> tuple[ast.Call | ast.keyword, ...]:
    """Calls and their keywords in the files that give a code: to parse all takes seconds."""
    texts = (file.read_text(encoding="utf-8") for file in files())
    trees = (ast.parse(text) for text in texts if "code=" in text)
    return tuple(
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.keyword)
    )


@cache
def constants() -> dict[str, str]:
    """Names of the modules that stand for a text; codes that are used twice have one."""
    texts = (file.read_text(encoding="utf-8") for file in files())
    return {name: value for text in texts for name, value in TEXT_CONSTANT.findall(text)}


def _text(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Name):
        return constants().get(node.id)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def raised() -> Iterator[tuple[int, str]]:
    """Status and code of every error that the sources make with both written out."""
    for call in nodes():
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        code = _text(given.get("code"))
        first = call.args[0] if call.args else None
        if call.func.id == errors.ContextLengthError.__name__:
            yield 400, errors.ContextLengthError.CODE
        if code is None:
            continue
        if call.func.id in ("ApiError", "Refusal"):
            if isinstance(first, ast.Constant) and isinstance(first.value, int):
                yield first.value, code
        elif call.func.id == "unavailable":
            yield 503, code
        else:
            yield NOT_FOUND.get(code, 400), code


def documented() -> set[tuple[int, str]]:
    found = set()
    for status, codes, cause, remedy in rows(part(PAGE, "codes")):
        assert cause and remedy, codes
        found |= {(int(status), code) for code in re.findall(r"`(\w+)`", codes)}
    return found


def test_every_code_has_a_row_with_its_status() -> None:
    there = set(raised())
    assert len(there) > 20
    # The routes' own: app.py chooses between the two by the status.
    there |= {(404, "not_found"), (405, "method_not_allowed")}
    there |= {
        (400, errors.bound_code(kind, is_below=is_below))
        for kind in errors.BOUNDED
        for is_below in (True, False)
    }
    assert there == documented()


def test_no_code_escapes_the_search() -> None:
    """Every `code=` that is a text is one of those found; others pass on what was found."""
    found = {code for _, code in raised()}
    for node in nodes():
        if isinstance(node, ast.keyword) and node.arg == "code":
            code = _text(node.value)
            assert code is None or code in found, code
            if isinstance(node.value, ast.Name) and node.value.id.isupper():
                assert code is not None, node.value.id


def _written(constants: object) -> Iterator[str]:
    """Every text in compiled code, pieces of f-strings one by one."""
    if isinstance(constants, str):
        yield constants
    elif isinstance(constants, CodeType):
        yield from _written(constants.co_consts)
    elif isinstance(constants, tuple | frozenset):
        for constant in constants:
            yield from _written(constant)


@pytest.fixture
def texts() -> set[str]:
    """Every text of the sources. Compiled code is cached beside them."""
    compiled = (SourceFileLoader(file.stem, str(file)).get_code(file.stem) for file in files())
    return {text for code in compiled for text in _written(code)}


def test_every_message_is_one_that_the_sources_write(texts: set[str]) -> None:
    told = [row for row in rows(part(PAGE, "messages")) if row[0] != "It says"]
    assert len(told) > 25
    for says, cause, remedy in told:
        assert cause and remedy, says
        pieces = [piece.strip() for piece in says.strip("`").split("…")]
        missing = [piece for piece in pieces if not any(piece in text for text in texts)]
        assert missing == [], says


def test_every_class_has_a_row() -> None:
    classes = {
        name for name, _ in inspect.getmembers(errors, inspect.isclass) if name.endswith("Error")
    }
    assert {row[0].strip("`") for row in rows(PAGE) if row[0].endswith("Error`")} == classes
