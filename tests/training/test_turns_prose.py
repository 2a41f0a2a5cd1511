"""Docstrings become prose: markup goes, sentences stay whole, imperatives get a subject."""

from __future__ import annotations

import pytest

from training.turns.prose import described, third_person


@pytest.mark.parametrize(
    ("docstring", "summary"),
    [
        ("Return the sum.", "Return the sum."),
        ("f(x) -> int\n\nReturn the sum of x", "Return the sum of x."),
        (
            "Call the function :func:`~a.b.run` with ``x``.\n\n:param x: it",
            "Call the function `run` with `x`.",
        ),
        ("Make one of them. It can be any of:\n\n- this\n- that", "Make one of them."),
        ("Read a file.  See the text.\n\nArgs:\n    path: where it is", "Read a file."),
        ("Give it a name.\n\nname\n    The new name.", "Give it a name."),
        ("Return *value* as `text <http>`_ of it.", "Return value as text of it."),
        ("Short.", ""),
        ("Return one of the", ""),
        ("TODO: write what this one does.", ""),
    ],
)
def test_a_docstring_becomes_plain_prose(docstring: str, summary: str) -> None:
    assert described(docstring) == (summary, summary)


def test_a_description_ends_before_the_limit() -> None:
    docstring = " ".join(["Return the sum of a and b."] * 20)
    assert described(docstring, max_words=15) == (
        "Return the sum of a and b.",
        "Return the sum of a and b. Return the sum of a and b.",
    )


@pytest.mark.parametrize(
    ("imperative", "indicative"),
    [
        ("Return the sum.", "returns the sum."),
        ("Copy a file.", "copies a file."),
        ("Fetch it now.", "fetches it now."),
        ("Destroy a thing.", None),
        ("Returns the sum.", "returns the sum."),
        ("Lookup up a name.", "looks up a name."),
        ("Run a coroutine and return the result.", "runs a coroutine and returns the result."),
        ("Wait to stop and return the result.", "waits to stop and return the result."),
        ("The sum of it.", None),
    ],
)
def test_a_docstring_gets_a_subject(imperative: str, indicative: str | None) -> None:
    assert third_person(imperative) == indicative
