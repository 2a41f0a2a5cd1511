"""Names and phrases that docs/words.md replaces: where the sources and the pages still have them.

`python -m tests.docs.words [PATH ...]` lists the places, `--write` writes the two lists of what is
left, whose numbers may only fall.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from tests.docs.other_texts import other_texts
from tests.docs.pages import ROOT, SOURCE, page, part, rows

NAMES_LEFT = Path(__file__).with_name("names.txt")
PHRASES_LEFT = Path(__file__).with_name("phrases.txt")


def words_of(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


WORDS = words_of(
    """about ahead alone apart around asked asking aside away began begun besides done everywhere
    found given had heard held here inside it kept late left listening looking made making met
    missed near nobody none one others passed passing said seen sent settled somebody such taken
    telling tells they ticking told took tried unread until visit wanted what when where which who
    whom whose wish with within without"""
)
"""Participles, pronouns and adverbs that name nothing, wherever in a name they are."""

WHOLE_NAMES = words_of("most moved now read ready shared shown written")
"""Words that say nothing alone, though they begin good names: `read_call`, `SharedPrefix`."""

NOUNS = words_of(
    """batching billing binding bookkeeping building caching casting chunking costing embed
    embedding encoding engineering exceed feed finding formatting hashing heading hedging
    indexing listing loading logging mapping meaning need padding parsing ping pinging planning
    pooling pricing processing profiling ranking rating reading readings reasoning recording
    rendering ring rounding routing sampling scaling scheduling seed serving setting settings
    shadowing sharding shed sibling speculating speed spelling spring staging steering streaming
    string structured thing thinking timing tokenizing tracing training typing warning"""
)
"""Words that end like a participle and are terms of the field."""

_WORDS_OF_A_CLASS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that messages and pages do not use."""

    name: str
    """As docs/words.md has it, in the first column."""
    pattern: re.Pattern[str]


def _phrase(name: str, pattern: str, flags: int = re.IGNORECASE) -> Phrase:
    return Phrase(name, re.compile(pattern, flags))


PHRASES = (
    _phrase(
        "is no X",
        r"(?<!there\s)\b(?:is|are|was|were|be|being|been) no\b"
        r"(?! (?:longer|more than|less than|later than|earlier than|fewer|better|larger|smaller))",
    ),
    _phrase("leave away", r"\b(?:leaves?|left|leaving)\b[^.;:]{0,40}\baway\b"),
    _phrase("tell, told", r"\b(?:tells?|told|telling)\b(?! (?:\S+ ){0,4}(?:apart|from)\b)"),
    _phrase("asked", r"\basked\b"),
    _phrase("said", r"\bsaid\b"),
    _phrase("one's own", r"\bone['’]s own\b"),
    _phrase("anew", r"\banew\b"),
    _phrase("is none", r"\b(?:is|are|was|were|be) none\b(?! of)", 0),
    _phrase("besides", r"\bbesides\b"),
    _phrase("for ever", r"\bfor ever\b"),
    _phrase("nobody", r"\bnobody\b"),
    _phrase("to be had", r"\b(?:to be|is|are|was|were|be) had\b"),
    _phrase("give back", r"\b(?:gives?|gave|given|giving) (?:it |them )?back\b"),
    _phrase("stands in", r"\b(?:stands?|stood|standing) (?:in|there|here|under|beside)\b"),
    _phrase("is not to be", r"\b(?:is|are) not to be\b"),
    _phrase(
        "Kept are X",
        r"(?:^|[.;:] )(?:(?:Not )?[A-Z][a-z]+ed|Not [a-z]+ed|Kept|Held|Sent|Meant|Shown|Left out)"
        r" (?:is|are) (?!not\b)",
        re.MULTILINE,
    ),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a phrase is used."""

    path: Path
    line: int
    phrase: str
    text: str
    """The words around it."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.phrase}: {self.text}"


def parsed_sources() -> dict[Path, ast.Module]:
    """Every source file of headrace."""
    files = sorted(SOURCE.rglob("*.py"))
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}


@cache
def replaced_names() -> frozenset[str]:
    """Modules and classes in the left column of the names of docs/words.md."""
    table = page("words.md").partition("\n## Names\n")[2].partition("\n## ")[0]
    spans = [span for cells in rows(table) for span in re.findall(r"`([\w.]+)`", cells[0])]
    return frozenset(span.removesuffix(".py") for span in spans)


def _named_badly(words: list[str]) -> bool:
    *_, head = ["", *(word for word in words if word not in ("settings", "metrics"))]
    return (
        any(word in WORDS for word in words)
        or (len(words) == 1 and head in WHOLE_NAMES)
        or (head.endswith(("ing", "ed")) and head not in NOUNS)
    )


def is_module_named_badly(name: str) -> bool:
    """name: of the file or folder, without `.py`."""
    return name in replaced_names() or _named_badly(name.strip("_").lower().split("_"))


def is_class_named_badly(name: str) -> bool:
    """Whether docs/words.md has another name for it, or a participle or a pronoun names it.

    Private classes are left to their module.
    A participle before Error is the field's way: ConnectionRefusedError.
    """
    if name.startswith("_"):
        return False
    words = [word.lower() for word in _WORDS_OF_A_CLASS.findall(name)]
    return name in replaced_names() or _named_badly(words)


def badly_named(sources: Mapping[Path, ast.Module]) -> Iterator[tuple[Path, int, str]]:
    """File, line, and `room kind name` of each module and public class that wants another name."""
    folders = sorted({parent for path in sources for parent in path.parents} - {SOURCE})
    for folder in folders:
        if folder.is_relative_to(SOURCE) and is_module_named_badly(folder.name):
            yield folder, 1, f"{room_of(folder)} module {folder.name}"
    for path, tree in sources.items():
        if not path.stem.startswith("__") and is_module_named_badly(path.stem):
            yield path, 1, f"{room_of(path)} module {path.stem}"
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and is_class_named_badly(node.name):
                yield path, node.lineno, f"{room_of(path)} class {node.name}"


def room_of(path: Path) -> str:
    """The top-level room of a source file; for a page its path."""
    if not path.is_relative_to(SOURCE):
        return path.relative_to(ROOT).as_posix()
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _is_command(node: ast.AST) -> bool:
    """Whether click shows the docstring of this function."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return any(
        "command" in ast.dump(mark) or "group" in ast.dump(mark) for mark in node.decorator_list
    )


def _docstrings(tree: ast.Module) -> set[int]:
    """Ids of the strings that no user reads: docstrings of all but commands."""
    hidden = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and not _is_command(node):
                hidden.add(id(first.value))
    return hidden


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a source that a user may meet, … where a value is put in.

    All strings of several words, wherever they are made into a message, a help text or a log line;
    docstrings of commands and strings under fields, which make the pages of settings.
    """
    hidden = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            hidden |= {id(piece) for piece in node.values}
            pieces = [
                piece.value if isinstance(piece, ast.Constant) else "…" for piece in node.values
            ]
            yield node.lineno, "".join(str(piece) for piece in pieces)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in hidden
        ):
            yield node.lineno, node.value


def phrases_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Lines after the first, the phrase, and the words around it."""
    for phrase in PHRASES:
        for match in phrase.pattern.finditer(text):
            around = text[max(0, match.start() - 30) : match.end() + 30].replace("\n", " ")
            yield text.count("\n", 0, match.start()), phrase.name, around


def places(sources: Mapping[Path, ast.Module]) -> list[Place]:
    """Every phrase in the sources, on the pages and in the files to copy."""
    found = [
        Place(path, line + below, phrase, around)
        for path, tree in sources.items()
        for line, text in texts(tree)
        for below, phrase, around in phrases_in(text)
    ]
    found += [
        Place(path, line + below, phrase, around)
        for path, line, text in other_texts()
        for below, phrase, around in phrases_in(text)
    ]
    return found


def documented_phrases() -> list[str]:
    """First column of the table of phrases."""
    return [cells[0] for cells in rows(part(page("words.md"), "phrases"))]


def read_numbers(file: Path) -> dict[str, int]:
    """Lines of a name, a tab or a space, and a number."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = (line.rsplit(" ", 1) for line in lines if line)
    return {name: int(number) for name, number in pairs}


def grown(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """What there is more of, with the number before and now."""
    return {
        name: (before.get(name, 0), number)
        for name, number in now.items()
        if number > before.get(name, 0)
    }


def counted_names(sources: Mapping[Path, ast.Module]) -> dict[str, int]:
    """`room kind name` of what wants another name, and how many have it."""
    return dict(sorted(Counter(name for _, _, name in badly_named(sources)).items()))


def counted_phrases(found: Iterable[Place]) -> dict[str, int]:
    """Number of phrases in each room and on each page."""
    return dict(sorted(Counter(room_of(place.path) for place in found).items()))


def write_numbers(file: Path, now: Mapping[str, int]) -> int:
    """Write a list of what is left; 1 and a message where a number would rise."""
    before = read_numbers(file)
    if file.is_file() and (more := grown(now, before)):
        for name, (least, number) in more.items():
            print(f"{file.name}: {name}: {least} before, {number} now", file=sys.stderr)
        return 1
    lines = "".join(f"{name} {number}\n" for name, number in now.items())
    file.write_text(lines, encoding="utf-8")
    return 0


class Found(Protocol):
    """Something in a source that a list of numbers by room is kept of."""

    @property
    def path(self) -> Path:
        """The file it is in."""


def counted_by_room(found: Iterable[Found]) -> dict[str, int]:
    """How many there are in each room."""
    return dict(sorted(Counter(room_of(each.path) for each in found).items()))


def of_grown_rooms(found: Sequence[Found], file: Path) -> list[str]:
    """Lines of all in the rooms that have more of them than the list in `file` allows."""
    more = grown(counted_by_room(found), read_numbers(file))
    return [str(each) for each in found if room_of(each.path) in more]


def list_or_write(found: Sequence[Found], file: Path, noun: str, chosen: Sequence[str]) -> int:
    """List what is left, all of it or below some paths; with --write, write the list."""
    if list(chosen) == ["--write"]:
        return write_numbers(file, counted_by_room(found))
    below = [Path(path).resolve() for path in chosen] or [SOURCE]
    lines = [str(each) for each in found if any(each.path.is_relative_to(place) for place in below)]
    print("\n".join(lines))
    print(f"{len(lines)} {noun}")
    return 0


def main(arguments: Iterable[str]) -> int:
    """List what is left, all of it or below some paths; with --write, write the lists."""
    chosen = list(arguments)
    sources = parsed_sources()
    if chosen == ["--write"]:
        return write_numbers(NAMES_LEFT, counted_names(sources)) | write_numbers(
            PHRASES_LEFT, counted_phrases(places(sources))
        )
    below = [Path(path).resolve() for path in chosen] or [ROOT]
    lines = [(place.path, str(place)) for place in places(sources)]
    lines += [
        (path, f"{path.relative_to(ROOT)}:{line}: name: {name}")
        for path, line, name in badly_named(sources)
    ]
    shown = [text for path, text in lines if any(path.is_relative_to(place) for place in below)]
    print("\n".join(shown))
    print(f"{len(shown)} places")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
