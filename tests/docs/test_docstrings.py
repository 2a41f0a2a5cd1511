"""Docstrings of classes begin with what the class is; fields are described under the field."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs import docstrings
from tests.docs.words import read_numbers


def test_docstrings_of_another_form_only_get_fewer(sources: Mapping[Path, ast.Module]) -> None:
    new = docstrings.new_offenders(list(docstrings.offenders(sources)))
    assert new == [], "docstrings of classes (CONTRIBUTING.md, Style):\n" + "\n".join(new)


def test_the_list_is_sorted() -> None:
    numbers = read_numbers(docstrings.DOCSTRINGS_LEFT)
    assert list(numbers) == sorted(numbers)
    assert 0 not in numbers.values()


@pytest.mark.parametrize(
    ("docstring", "reason"),
    [
        ("A unit of work. rate: per second.", None),
        ("Limits of one client. Raises ConfigError for a value out of range.", None),
        ("A price. rate: per second. limit: at most.", None),
        ("rate: per second.", "begins with the field rate"),
        ("`rate`: per second.", "begins with the field rate"),
        ("rate, limit: both of them.", "begins with the field rate"),
        ("limit of what is sent.", "begins with the field limit"),
        ("elsewhere: of no field.", "begins with the field elsewhere"),
        ("Of a stream.", "begins with Of, not with what the class is"),
        ("What is known of a call.", "begins with What, not with what the class is"),
        ("Told to a client.", "begins with Told, not with what the class is"),
        (
            "A price. rate, limit: both of\nthem. `unit`: a word.",
            "describes limit, rate, unit in the paragraph, not by strings under the fields",
        ),
    ],
)
def test_forms_are_told_apart(docstring: str, reason: str | None) -> None:
    source = f'class Price:\n    """{docstring}"""\n    rate: int\n    limit: int\n    unit: str\n'
    [node] = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    assert docstrings.reason(node) == reason


def test_a_room_with_more_than_the_list_allows_is_listed_whole() -> None:
    tree = ast.parse('class Price:\n    """Of a token."""\nclass Rate:\n    """A rate."""\n')
    path = docstrings.SOURCE / "unheard" / "price.py"
    found = list(docstrings.offenders({path: tree}))
    assert docstrings.counted(found) == {"unheard": 1}
    assert docstrings.new_offenders(found) == [
        "src/headrace/unheard/price.py:1: class Price: begins with Of, not with what the class is"
    ]
