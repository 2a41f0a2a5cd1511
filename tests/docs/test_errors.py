"""docs/errors.md: every code of the sources with its status, and only messages that there are."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache

from headrace import errors
from headrace.server.api_error import MODEL_NOT_FOUND
from tests.docs.pages import SOURCE, page, part, rows

PAGE = page("errors.md")
# A RequestError is a 400, but for this one; `unavailable` is a 503.
NOT_FOUND = {MODEL_NOT_FOUND: 404}
# Only of objects a Python caller hands in: JSON of a wrong type has no code.
IN_PYTHON_ONLY = {"invalid_type"}


# The gateway's codes are its own, and stand in docs/gateway.md.
ELSEWHERE = {"gateway", "dialects"}


@cache
def trees() -> tuple[ast.Module, ...]:
    files = [one for one in sorted(SOURCE.rglob("*.py")) if not ELSEWHERE & set(one.parts)]
    return tuple(ast.parse(file.read_text(encoding="utf-8")) for file in files)


@cache
def constants() -> dict[str, str]:
    """Names of the modules that stand for a text; codes that are used twice have one."""
    return {
        node.targets[0].id: node.value.value
        for tree in trees()
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _text(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Name):
        return constants().get(node.id)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def raised() -> Iterator[tuple[int, str]]:
    """Status and code of every error that the sources make with both written out."""
    for call in (node for tree in trees() for node in ast.walk(tree)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        code = _text(given.get("code"))
        first = call.args[0] if call.args else None
        if code is None:
            continue
        if call.func.id in ("ApiError", "Refusal"):
            if isinstance(first, ast.Constant) and isinstance(first.value, int):
                yield first.value, code
        elif call.func.id == "unavailable":
            yield 503, code
        elif code not in IN_PYTHON_ONLY:
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
    assert there == documented()


def test_no_code_escapes_the_search() -> None:
    """Every `code=` that is a text is one of those found; others pass on what was found."""
    found = {code for _, code in raised()} | IN_PYTHON_ONLY
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "code":
                code = _text(node.value)
                assert code is None or code in found, code
                if isinstance(node.value, ast.Name) and node.value.id.isupper():
                    assert code is not None, node.value.id


def _written() -> Iterator[str]:
    """Every text of the sources, with … where a value is put in."""
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                pieces = [getattr(piece, "value", None) for piece in node.values]
                yield "".join(piece if isinstance(piece, str) else "…" for piece in pieces)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_message_is_one_that_the_sources_write() -> None:
    texts = list(_written())
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
