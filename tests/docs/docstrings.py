"""Class docstrings that do not begin with what the class is, or describe its fields in a paragraph.

`python -m tests.docs.docstrings [PATH ...]` lists them, `--write` writes the list of what is left,
whose numbers may only fall.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.words import list_or_write, of_grown_rooms, parsed_sources, words_of

DOCSTRINGS_LEFT = Path(__file__).with_name("docstrings.txt")

NOT_A_NOUN = words_of(
    """Alike All Alone Always Anybody Anything As Asked At Before Begun Behind Below Beside Between
    Both Bought By Drawn During Each Empty Enough Every Everybody Everything Few For From Given
    Held Here How If In Inside It Joined Kept Least Left Less Made Many More Most Neither Never No
    Nobody None Not Nothing Of On Only Opened Outside Over Read Said See Sent Several Shown So Some
    Somebody Something Taken That There These They This Those Through To Told Too Two Under What
    When Where Whether Which While Who Whoever Whole Whom Whose Why With Within Without"""
)
"""Adverbs, pronouns, prepositions and participles that begin no docstring of a class."""

VERBS = words_of(
    """Aborts Accepts Adds Adjusts Appends Applies Ask Asks Assembles Begin Begins Builds Caches
    Carries Chooses Collects Combines Compares Compiles Computes Connects Contains Converts Creates
    Cut Decides Decodes Delivers Determines Discard Discards Distinguishes Do Does Encodes End
    Executes Find Finds Follows Forget Gets Give Gives Goes Handles Happens Has Hears Helps Hides
    Identifies Is Joins Keep Keeps Knows Learns Leaves Lets Listens Looks Make Makes Merges Opens
    Parses Picks Prints Produces Provides Put Puts Raises Reads Receives Refuses Releases Remember
    Remembers Removes Renders Replaces Resolves Rewrites Says Searches Selects Send Sends Serves
    Sorts Take Takes Tell Tells Translates Tries Use Verifies Wait Waits Wants Watches Wraps Write
    Writes Yields"""
)
"""Verbs, which say what the class does."""

NOUNS_OR_VERBS = words_of(
    """Answers Calls Changes Checks Copies Counts Cuts Draws Ends Feed Feeds Hands Holds Loads Maps
    Matches Measures Moves Notes Passes Plans Reports Requests Returns Routes Runs Sets Shows Splits
    Starts Stops Stores Tests Tracks Turns Updates Uses Visits Walks"""
)
"""Words that are verbs where an object follows: "Runs a plan", but "Runs of a plan"."""

_OBJECT = re.compile(
    r"\w+ (?:`|(?:a|all|an|back|each|every|finished|how|it|its|nothing|once|one|the|their|what)\b)"
)

MOST_FIELDS = 2
"""Fields that a docstring may describe; with more of them each has a string of its own."""

_NAMES_AND_COLON = re.compile(r"(?:^|(?<=\s))(`?\w+`?(?:, `?\w+`?)*):(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Offender:
    """A class whose docstring has another form."""

    path: Path
    line: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: class {self.name}: {self.reason}"


def _fields(node: ast.ClassDef) -> frozenset[str]:
    """Annotated names of the body."""
    return frozenset(
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )


def _described(docstring: str, fields: frozenset[str]) -> set[str]:
    """Fields that the paragraph describes as `field: ...` or `field, field: ...`."""
    groups = _NAMES_AND_COLON.findall(docstring)
    return {name.strip("`") for group in groups for name in group.split(", ")} & fields


def _is_verb(first: str, docstring: str) -> bool:
    """Whether a docstring says what the class does, not what it is."""
    return first in VERBS or (first in NOUNS_OR_VERBS and _OBJECT.match(docstring) is not None)


def reason(node: ast.ClassDef) -> str | None:
    """Why the docstring of a class has to change; None where it need not."""
    docstring = ast.get_docstring(node)
    if docstring is None:
        return None
    fields = _fields(node)
    word = re.match(r"`?(\w*)", docstring)
    first = word[1] if word is not None else ""
    if first in fields or _NAMES_AND_COLON.match(docstring):
        return f"begins with the field {first}"
    if first in NOT_A_NOUN or _is_verb(first, docstring):
        return f"begins with {first}, not with what the class is"
    described = _described(docstring, fields)
    if len(described) > MOST_FIELDS:
        names = ", ".join(sorted(described))
        return f"describes {names} in the paragraph, not by strings under the fields"
    return None


def _classes(statements: Iterable[ast.AST]) -> Iterator[ast.ClassDef]:
    """Classes in the bodies of modules, classes, functions and conditions."""
    for node in statements:
        if isinstance(node, ast.ClassDef):
            yield node
        for block in ("body", "orelse"):
            if isinstance(inner := getattr(node, block, None), list):
                yield from _classes(inner)


def offenders(sources: Mapping[Path, ast.Module]) -> Iterator[Offender]:
    """Every class of the sources, nested ones too, whose docstring has another form."""
    for path, tree in sources.items():
        for node in _classes(tree.body):
            if (why := reason(node)) is not None:
                yield Offender(path, node.lineno, node.name, why)


def new_offenders(found: list[Offender]) -> list[str]:
    """Lines of those in rooms that have more of them than the list allows."""
    return of_grown_rooms(found, DOCSTRINGS_LEFT)


if __name__ == "__main__":
    sys.exit(
        list_or_write(list(offenders(parsed_sources())), DOCSTRINGS_LEFT, "classes", sys.argv[1:])
    )
