"""What readers meet outside Python files: strings of scripts, the text of HTML, files to copy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, SOURCE

SPOKEN = frozenset({"alt", "aria-label", "placeholder", "title"})
"""Attributes of HTML that people read or hear."""

_SCRIPT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<pattern>(?<=[(,=:!&|?{};])\s*/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*)
    |"(?P<double>(?:\\.|[^"\\\n])*)"
    |'(?P<single>(?:\\.|[^'\\\n])*)'
    |`(?P<template>(?:\\.|\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\}|[^`\\])*)`""",
    re.VERBOSE | re.DOTALL,
)
_VALUE = re.compile(r"\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\}")
_NAME = re.compile(r"(?:\b(?:class|className|id)\s*[:=]+\s*|getElementById\(|import\b.*from\s*)$")
"""Before a string that names a style, an element or a file: no person reads it."""


def pages() -> list[Path]:
    """Pages of prose: all but the one that lists the phrases."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    found += [*_below(ROOT / "benchmarks", "*.md"), ROOT / "training" / "README.md"]
    found += [*sorted(DOCS.glob("*.md")), *_below(ROOT / "deploy", "*.md")]
    return [path for path in found if path.name != "words.md"]


def deployed() -> list[Path]:
    """Files that users copy: units, rules, dashboards."""
    return [path for path in _below(ROOT / "deploy", "*") if path.suffix != ".md"]


def _below(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def unreleased(changelog: str) -> str:
    """The section of what is not released yet, with the lines where they are."""
    before, heading, rest = changelog.partition("\n## Unreleased\n")
    return "\n" * (before + heading).count("\n") + rest.partition("\n## ")[0]


def prose(text: str) -> str:
    """Markdown with the lines where they are, without code in backticks."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    text = re.sub(r"^```.*?^```$|<!--.*?-->", blank, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", "`…`", text)


def script_texts(script: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a JavaScript file, … where a value is put in."""
    for match in _SCRIPT.finditer(script):
        if match.lastgroup in ("comment", "pattern"):
            continue
        line = 1 + script.count("\n", 0, match.start())
        text = match[match.lastgroup or 0]
        if match.lastgroup == "template":
            for value in _VALUE.findall(text):
                yield from ((line + below - 1, inner) for below, inner in script_texts(value[2:]))
            yield line, _VALUE.sub("…", text)
        elif not _NAME.search(script[script.rfind("\n", 0, match.start()) + 1 : match.start()]):
            yield line, text


class _SpokenText(HTMLParser):
    """A reader of what a page of HTML shows or says."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[tuple[int, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.texts += [(self.getpos()[0], text) for name, text in attrs if name in SPOKEN and text]

    def handle_data(self, data: str) -> None:
        self.texts.append((self.getpos()[0], data))


def html_texts(page: str) -> list[tuple[int, str]]:
    """Line and text of what a page of HTML shows or says."""
    reader = _SpokenText()
    reader.feed(page)
    reader.close()
    return reader.texts


def other_texts() -> Iterator[tuple[Path, int, str]]:
    """File, line and text of all that is not Python."""
    for path in pages():
        yield path, 1, prose(path.read_text(encoding="utf-8"))
    changelog = ROOT / "CHANGELOG.md"
    yield changelog, 1, prose(unreleased(changelog.read_text(encoding="utf-8")))
    for path in deployed():
        yield path, 1, path.read_text(encoding="utf-8")
    for path in sorted(SOURCE.rglob("*.js")):
        for line, text in script_texts(path.read_text(encoding="utf-8")):
            yield path, line, text
    for path in sorted(SOURCE.rglob("*.html")):
        for line, text in html_texts(path.read_text(encoding="utf-8")):
            yield path, line, text
