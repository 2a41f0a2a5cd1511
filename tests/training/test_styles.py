"""The styles: what is chosen and cut for training, and what is counted in broken text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from training.styles import documents as styles
from training.styles import measures as style_measures

TERSE_SOURCE = '''\
"""A module."""
import os
from math import pi, tau as turn


@decorated
def area(radius):
    """Return the area of a Circle.  It is round.

    More words.
    """

    # squared first
    square = radius ** 2
    return pi * square  # ünïcode stays


class Shape:
    """Shape."""

    def name(self):
        """Name it.""" ; return 1


class Wheel:
    """
    Turns around an axle and carries a load on every road.
    """

    size = turn

    def empty(self):
        """Does nothing."""

    # spokes are many
    def spokes(self):
        """Count them all."""
        return os.cpu_count()
'''


def definition(source: str, name: str) -> tuple[list[str], ast.Module, Any]:
    tree = ast.parse(source)
    (node,) = (node for node in tree.body if getattr(node, "name", None) == name)
    return source.splitlines(keepends=True), tree, node


def test_docstrings_are_cut_and_everything_else_stays() -> None:
    lines, _, area = definition(TERSE_SOURCE, "area")
    assert styles.without_docstrings(lines, area) == (
        "@decorated\n"
        "def area(radius):\n"
        "    # return the area of a Circle\n"
        "    # squared first\n"
        "    square = radius ** 2\n"
        "    return pi * square  # ünïcode stays\n"
    )
    lines, _, wheel = definition(TERSE_SOURCE, "Wheel")
    assert styles.without_docstrings(lines, wheel) == (
        "class Wheel:\n"
        "    size = turn\n"
        "\n"
        "    def empty(self):\n"
        "        # does nothing\n"
        "        pass\n"
        "\n"
        "    # spokes are many\n"
        "    def spokes(self):\n"
        "        # count them all\n"
        "        return os.cpu_count()\n"
    )


def test_a_docstring_that_shares_its_line_is_left_alone() -> None:
    lines, _, shape = definition(TERSE_SOURCE, "Shape")
    assert styles.without_docstrings(lines, shape) is None


def test_terse_documents_parse_have_their_imports_and_no_docstring() -> None:
    tree = ast.parse(TERSE_SOURCE)
    (wheel,) = styles.terse_documents(TERSE_SOURCE, tree)  # of `area` two comment lines meet
    assert wheel.startswith("import os\nfrom math import tau as turn\n\n\nclass Wheel:\n")
    for node in ast.walk(ast.parse(wheel)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert ast.get_docstring(node) is None


@pytest.mark.parametrize(
    ("docstring", "comment"),
    [
        ("Return the sum.", "return the sum"),
        ("HTTP request of a Client\n\nMore.", "HTTP request of a Client"),
        ("DataFrame rows.  And more.", "DataFrame rows"),
        ("One two three four five six seven eight.", "one two three four five six seven eight"),
        ("One two three four five six seven eight nine.", None),
        ("Return `x`.", None),
        ("Return :class:`X`.", None),
        ("Word.", None),
        ("", None),
    ],
)
def test_a_comment_is_a_short_plain_first_sentence(docstring: str, comment: str | None) -> None:
    assert styles.comment_of(docstring) == comment


@pytest.mark.parametrize(
    ("source", "terse"),
    [
        ("def f(x):\n    # add one\n    return x + 1\n", True),
        ("def f(x):\n    return x + 1\n", False),
        ("def f(x):\n    return x + 1  # add one\n", False),
        ("def f(x):\n    # a\n    # b\n    return x\n", False),
        ("def f(x):\n    # one two three four five six seven eight nine\n    return x\n", False),
        ("def f(x):\n    # add one\n    return x + 1  # noqa: E1\n", False),
        ("def f(x):\n    # add one\n    'text'\n    return x\n", False),
        ("def f(x):\n    # add one\n" + "    x += 1\n" * 40, False),
    ],
)
def test_terse_means_short_comments_and_no_docstring(source: str, terse: bool) -> None:
    assert styles.is_terse(source) is terse


TYPED = "def f(self, a: int, *rest: str, key: bytes = b'', **more: object) -> int | None:\n"
BODY = "    total = a\n    return total\n"


@pytest.mark.parametrize(
    ("head", "typed"),
    [
        (TYPED, True),
        ("def f() -> None:\n", True),
        ("def f(a) -> int:\n", False),
        ("def f(a: int):\n", False),
        ("def f(*a) -> int:\n", False),
        ("def f(**a) -> int:\n", False),
        ("def f(a: int, *, b) -> int:\n", False),
        ("async def f(cls, a: int, /) -> int:\n", True),
    ],
)
def test_typed_means_every_parameter_and_the_return(head: str, typed: bool) -> None:
    (node,) = ast.parse(head + BODY).body
    assert style_measures.is_typed(node) is typed  # type: ignore[arg-type]
    assert styles.typed_documents(head + BODY, ast.parse(head + BODY)) == (
        [head + BODY] if typed else []
    )


def test_old_spellings_are_left_out() -> None:
    for annotation in ("Optional[int]", "typing.List[int]", "dict[str, Union[int, str]]"):
        source = f"def f(a: {annotation}) -> int:\n{BODY}"
        assert styles.typed_documents(source, ast.parse(source)) == []


def test_a_typed_module_is_one_document_and_an_untyped_one_gives_its_typed_parts() -> None:
    one = "def f(a: int) -> int:\n    b = a\n    return b\n"
    typed = "import os\n\n\n" + one + "\n\n" + one.replace("f(", "g(") + "\n\nN = os.sep\n"
    assert styles.typed_documents(typed, ast.parse(typed)) == [typed]
    mixed = typed + "\n\ndef h(x):\n    y = x\n    return os.sep * y\n"
    assert styles.typed_documents(mixed, ast.parse(mixed)) == [one, one.replace("f(", "g(")]


def test_documents_are_the_same_for_the_same_seed_and_no_more_than_asked_for() -> None:
    texts = [f"def f{i}(a: int) -> int:\n    b = a + {i}\n    return b\n" for i in range(50)]
    texts += ["not Python at all", "def untyped(a):\n    b = a\n    return b\n"]
    every = styles.style_documents(texts, "typed", seed=1, max_bytes=1 << 20)
    assert sorted(every) == sorted(texts[:50])
    assert styles.style_documents(texts, "typed", seed=1, max_bytes=1 << 20) == every
    assert styles.style_documents(texts, "typed", seed=2, max_bytes=1 << 20) != every
    assert styles.style_documents(texts, "typed", seed=1, max_bytes=100) == every[:2]


def test_no_file_gives_more_documents_than_the_bound() -> None:
    text = "".join(
        f"def f{i}(x):\n    # add {i}\n    return x + {i}\n\n\n"
        for i in range(3 * styles.MAX_FILE_DOCUMENTS)
    )
    chosen = styles.style_documents([text], "terse", seed=1, max_bytes=1 << 20)
    assert len(set(chosen)) == len(chosen) == styles.MAX_FILE_DOCUMENTS


def test_a_conversation_suits_a_style_when_its_code_does() -> None:
    typed, untyped = "def f(a: int) -> int:\n    return a\n", "def f(a):\n    return a\n"
    documented = 'def f(a):\n    """Return a."""\n    return a\n'
    said = "It's what `x` does."
    assert [styles.suits(f"{said}\n{code}", "typed") for code in (typed, untyped)] == [True, False]
    assert [styles.suits(code, "terse") for code in (untyped, documented)] == [True, False]
    assert all(styles.suits(said, style) for style in styles.STYLES)


BROKEN = '''\
def good(a: int, b: str = "x) -> y:") -> dict[str, int]:
    """Say something.

    def not_a_function(x): # not a comment
    """
    return {}  # two words

def no_doc(a, *args):
    # one, then a call
    f("""text
    def neither(x):
    """)
    this is ! not Python (

async def spread(
    self,
    a: int,  # why
    b,
) -> None:
    # above
    \'\'\'Docstring behind a comment.\'\'\'

def broken(a b):
    pass

def body_cut(a: int) -> int:
'''


def test_counts_of_text_that_does_not_parse() -> None:
    cut = BROKEN + "def head_cut(a: int, b: tuple[int,"
    counts = style_measures.count(cut)
    assert counts == style_measures.Counts(
        functions=4,  # `broken` is no function, and the last head has no end
        typed_functions=2,
        parameters=7,
        annotated_parameters=4,
        annotated_returns=3,
        bodies=4,
        docstrings=2,
        code_lines=15,
        comments=4,
        comment_words=2 + 4 + 1 + 1,
    )


def test_a_body_that_is_not_there_is_not_counted() -> None:
    counts = style_measures.count("def f(a: int) -> int:\n    # begun\n")
    assert (counts.functions, counts.bodies, counts.docstrings) == (1, 0, 0)


def test_counts_agree_with_the_syntax_tree_on_real_modules() -> None:
    for path in (Path(styles.__file__), Path(style_measures.__file__), Path(__file__)):
        text = path.read_text()
        functions = styles.functions_in(ast.parse(text))
        counts = style_measures.count(text)
        assert counts.functions == len(functions)
        assert counts.typed_functions == sum(map(style_measures.is_typed, functions))
        documented = [ast.get_docstring(function, clean=False) for function in functions]
        assert counts.docstrings == sum(text is not None for text in documented)


def test_directives_are_no_comments_and_shares_of_nothing_are_zero() -> None:
    counts = style_measures.count("x = 1  # type: ignore\n#!/usr/bin/python\ny = 2  # noqa\n")
    assert counts == style_measures.Counts(code_lines=2)
    assert set(counts.shares().values()) == {0.0}


def test_counts_add_up() -> None:
    one = style_measures.count(BROKEN)
    both = style_measures.count_all([BROKEN, BROKEN])
    assert both == one + one
    assert both.functions == 2 * one.functions
    assert both.shares() == one.shares()


def test_prompts_are_public_functions_with_parameters_once() -> None:
    text = "def f(a):\n pass\ndef _g(a):\n pass\ndef h():\n pass\nclass A:\n def m(self): pass\n"
    assert style_measures.name_prompts([text, "no Python", text]) == ["def f("]
