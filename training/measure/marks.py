"""Marks that a program can give to Python text: does it parse, do brackets match, is it indented.

For text that may break off anywhere, as completions do. Only the completion is marked; what stands
before it is read for its indentation, open brackets and strings. Nothing is executed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

INDENT = 4
PAIRS = {")": "(", "]": "[", "}": "{"}
# A string to its end or, where the text breaks off, to there; a comment; brackets; line ends.
PART = re.compile(
    r"""(?P<string>("{3}|'{3})(?:\\.|(?!\2).)*?(?:\2|\Z)
    |"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\Z)|'(?:\\.|[^'\\\n])*(?:'|(?=\n)|\Z))
    |(?P<comment>\#[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<joined>\\\n)|(?P<end>\n)
    |(?P<other>[^\s])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Marks:
    """Marks of a completion's lines; shares are None when it has no line to give them to.

    `n_lines` counts those that are not blank. `parsed_share` is the share of the completion's whole
    lines that lie in the longest beginning of prompt and completion which is a Python module.
    `brackets_match` says that no bracket is closed by another kind or without being open;
    `n_open_brackets` are still open where the text ends. `indented_share` is the share of lines of
    code, outside of brackets and strings, that are indented by a multiple of INDENT columns that
    Python allows there.
    """

    n_lines: int
    parsed_share: float | None
    brackets_match: bool
    n_open_brackets: int
    indented_share: float | None


class Line(NamedTuple):
    """A logical line: where it begins, columns of indentation, whether it ends in a colon."""

    first: int
    columns: int
    opens_block: bool


def marks_of(prompt: str, completion: str) -> Marks:
    """The marks of `completion` as what follows `prompt`."""
    text = prompt + completion
    matching, n_open = _brackets(text)
    return Marks(
        n_lines=sum(not line.isspace() for line in completion.splitlines() if line),
        parsed_share=_parsed_share(prompt, completion),
        brackets_match=matching,
        n_open_brackets=n_open,
        indented_share=_indented_share(text, len(prompt)),
    )


def settled(text: str) -> bool:
    """Whether `text` ends with a line of code, comment or nothing, outside of brackets and strings.

    What ends so may be continued by a line of any kind.
    """
    depth, kind = 0, None
    for match in PART.finditer(text):
        kind = match.lastgroup
        depth += (kind == "open") - (kind == "close")
    return kind == "end" and depth == 0


def _parsed_share(prompt: str, completion: str) -> float | None:
    ends = [len(prompt) + match.end() for match in re.finditer(r"\n", completion)]
    text = prompt + completion
    for index in range(len(ends), 0, -1):
        if parses(text[: ends[index - 1]]):
            return index / len(ends)
    return 0.0 if ends else None


def parses(text: str) -> bool:
    """Whether `text` is a Python module of the running interpreter's version."""
    with warnings.catch_warnings():
        # Of escapes in strings: a matter of taste here.
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # ValueError is for null characters, the last two for too many brackets.
            return False
    return True


def _brackets(text: str) -> tuple[bool, int]:
    still_open: list[str] = []
    for match in PART.finditer(text):
        if match["open"]:
            still_open.append(match["open"])
        elif match["close"] and (not still_open or still_open.pop() != PAIRS[match["close"]]):
            return False, len(still_open)
    return True, len(still_open)


def logical_lines(text: str) -> Iterator[Line]:
    """Each line of code; blank lines, comments and lines within brackets or strings are none."""
    depth, first, last = 0, -1, ""
    for match in PART.finditer(text):
        kind = match.lastgroup
        if kind in ("comment", "joined"):
            continue
        if kind == "end":
            if first >= 0 and depth <= 0:
                yield _line(text, first, last)
                depth, first = 0, -1
            continue
        first = match.start() if first < 0 else first
        depth += (kind == "open") - (kind == "close")
        last = match[0]
    if first >= 0:
        yield _line(text, first, last)


def _line(text: str, first: int, last: str) -> Line:
    before = text[text.rfind("\n", 0, first) + 1 : first]
    return Line(first, len(before.expandtabs(8)), last == ":")


def _indented_share(text: str, n_prompt: int) -> float | None:
    levels: list[int] = []
    opened = False
    marks = []
    for line in logical_lines(text):
        legal = not levels or (line.columns > levels[-1] if opened else line.columns in levels)
        # Also behind an illegal line: the next ones are held against what stands now.
        levels = [*(level for level in levels if level < line.columns), line.columns]
        opened = line.opens_block
        if line.first >= n_prompt:
            marks.append(legal and line.columns % INDENT == 0)
    return sum(marks) / len(marks) if marks else None
