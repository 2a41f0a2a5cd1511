"""What is wrong with a text that is not YAML, for people: file, line, the mistake, its remedy.

A parser reports the token at which it gave up, which is often not where the mistake is. No value is
shown, as it may be a key.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

from headrace.errors import ConfigError

YAML_ERRORS = (yaml.YAMLError, RecursionError, ValueError, AttributeError)
"""All that PyYAML's safe loader raises: the last two for dates and tags that cannot be."""

_INDENTATION = (
    "this does not belong to the lines above it: give names of one level the same indentation, and "
    "write nothing after a closing quotation mark"
)


class _Mistake(NamedTuple):
    """A mistake that the parser's message stands for."""

    pattern: str
    """Of the parser's message."""
    text: str
    """With the pattern's groups."""
    at_opening: bool = False
    """Whether it is reported where the bracket or quotation mark was opened."""


_MISTAKES = (
    _Mistake(r"found character '\\t'", "a tab: indent with spaces"),
    _Mistake(
        r"found character '(?P<it>.)'", "a value cannot begin with `{it}`: put it in quotes"
    ),
    _Mistake(
        r"found unexpected end of stream", "the quotation mark opened here is not closed",
        at_opening=True,
    ),
    _Mistake(
        r"expected ',' or '\]'",
        "the `[` opened here is not closed: add `]`, or a comma between its values",
        at_opening=True,
    ),
    _Mistake(
        r"expected ',' or '\}'",
        "the `{{` opened here is not closed: add `}}`, or a comma between its values",
        at_opening=True,
    ),
    _Mistake(
        r"expected the node content, but found '(?P<it>[^']*)'",
        "a value is missing before `{it}`: add it, or quote a text that begins so",
    ),
    _Mistake(
        r"found undefined alias '(?P<it>[^']*)'",
        "`*{it}` refers to an anchor that the file does not have: put a text that begins with `*` "
        "in quotes",
    ),
    _Mistake(
        r"mapping values are not allowed here",
        "a second `name: value` where none can be: put a value with `: ` in it in quotes, write a "
        "space after every colon above, and give names of one level the same indentation",
    ),
    _Mistake(
        r"could not find expected ':'",
        "a line without `: `: write `name: value`, with a space after the colon",
    ),
    _Mistake(
        r"sequence entries are not allowed here",
        "`- ` begins an item of a list: put it on a line of its own, or quote the text",
    ),
    _Mistake(
        r"could not determine a constructor for the tag '(?:tag:yaml.org,2002:)?(?P<it>[^']*)'",
        "the tag `{it}` is not read: omit it, or put a text that begins with `!` in quotes",
    ),
    _Mistake(
        r"found unhashable key",
        "a name is a list or a mapping: put a text that begins with `{{` or `[` in quotes",
    ),
    _Mistake(
        r"found unknown escape character",
        "in double quotes a backslash begins an escape: use single quotes, or write it twice",
    ),
    _Mistake(
        r"expected chomping or indentation",
        "`|` and `>` begin a text on the lines below: put a value that begins so in quotes",
    ),
    _Mistake(r"expected (?:<block end>|'<document start>')", _INDENTATION),
    _Mistake(
        r"unacceptable character #x(?P<it>[0-9a-f]+)",
        "the control character U+{it} is not allowed: remove it",
    ),
)  # fmt: skip


def yaml_error(error: Exception, text: str, name: str) -> ConfigError:
    """One of YAML_ERRORS as an error with the file's `name`, and the line where it is known."""
    if isinstance(error, yaml.YAMLError):
        return _invalid(error, text, name)
    if isinstance(error, RecursionError):
        return ConfigError(f"{name}: not usable YAML: it is nested too deeply: flatten it")
    if isinstance(error, AttributeError):
        return ConfigError(
            f"{name}: not usable YAML: a value does not have the form of its `!!` tag: omit the tag"
        )
    return ConfigError(
        f"{name}: not usable YAML: {error}: put a text that only looks like a date in quotes"
    )


def _invalid(error: yaml.YAMLError, text: str, name: str) -> ConfigError:
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    mark = getattr(error, "problem_mark", None)
    line = None if mark is None else mark.line + 1
    column = None if mark is None else mark.column + 1
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    said = problem
    for mistake in _MISTAKES:
        found = re.match(mistake.pattern, problem)
        if found is None:
            continue
        said = mistake.text.format(**found.groupdict())
        opening = getattr(error, "context_mark", None)
        if mistake.at_opening and opening is not None:
            line, column = opening.line + 1, opening.column + 1
        break
    if line is None:
        return ConfigError(f"{name}: not valid YAML: {said}")
    return ConfigError(f"{name}:{line}: not valid YAML, in column {column}: {said}")
