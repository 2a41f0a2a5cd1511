"""The pages: each is reachable, leads somewhere, and together they name all that can be used."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from headrace.cli.main import COMMANDS, cli
from headrace.config import EngineConfig, ServerConfig, flags_of
from headrace.server.app import ROUTES
from tests.docs.pages import DOCS, ROOT, SOURCE, anchors, page, prose
from tools import generate_docs

INDEX = [ROOT / "README.md", DOCS / "README.md"]
PAGES = sorted(
    path
    for folder in ("", "docs", "deploy", "benchmarks", "benchmarks/figures", "training")
    for path in (ROOT / folder).glob("*.md")
)
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")
# Pages about headrace alone; others compare it, and name flags of other programs.
OURS = ("quickstart", "serving", "errors", "api", "metrics", "observing", "offline", "engine")
OF_FUZZERS = {"--atheris", "--url"}
# Other programs' names, each with the page that says what it does here.
VARIABLES = re.compile(r"\"((?:HEADRACE|HF|XDG|OLLAMA|OTEL|NO|TRANSFORMERS|HUGGINGFACE)_[A-Z_]+)\"")


def links(path: Path) -> list[tuple[Path, str]]:
    """File and anchor of every link of a page that leads to a place in the repository."""
    found = []
    for pair in _LINK.findall(prose(path.read_text(encoding="utf-8"))):
        target = pair[0] or pair[1]
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            found.append(((path.parent / name).resolve() if name else path, anchor))
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in links(path):
        assert target.exists(), f"{path.name} leads to {target}, which is not there"
        assert target.is_relative_to(ROOT), f"{path.name} leads out of the repository: {target}"
        if anchor:
            there = anchors(target.read_text(encoding="utf-8"))
            assert anchor in there, f"{path.name}: {target.name} has no heading #{anchor}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        path = ahead.pop()
        if path not in reached and path.suffix == ".md" and path.is_file():
            reached.add(path)
            ahead += [target for target, _ in links(path)]
    assert [path for path in PAGES if path not in reached] == []


def test_the_index_has_every_page() -> None:
    named = {target for target, _ in links(DOCS / "README.md")}
    assert [path.name for path in DOCS.glob("*.md") if path not in named | set(INDEX)] == []


def test_every_picture_is_on_a_page() -> None:
    shown = {target for path in PAGES for target, _ in links(path)}
    assert [path.name for path in DOCS.glob("*.svg") if path not in shown] == []


def test_every_endpoint_is_in_the_api() -> None:
    text = page("api.md")
    paths = {path.replace(":path}", "}") for _, path, _ in ROUTES}
    assert [path for path in paths if f"`{path}`" not in text] == []


def test_every_command_is_in_commands_and_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = page("commands.md")
    assert [name for name in COMMANDS if f"\n## headrace {name}\n" not in commands] == []
    assert [name for name in COMMANDS if f"`{name}" not in readme] == []


def test_flags_that_pages_name_are_flags() -> None:
    """No page tells of a flag that is no more."""
    known = {
        name
        for config in (EngineConfig, ServerConfig)
        for flag in flags_of(config)
        for name in (flag.flag, *flag.aliases, f"--no-{flag.flag.removeprefix('--')}")
    } | {"--help", "--version"}
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        for one in inner:
            assert one is not None
            known |= {flag for parameter in one.params for flag in parameter.opts}
    for path in (DOCS / f"{name}.md" for name in OURS):
        spans = re.findall(r"`([^`\n]+)`", prose(path.read_text(encoding="utf-8")))
        ours = [span for span in spans if span.startswith(("--", "headrace "))]
        used = {flag for span in ours for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)}
        assert used <= known | OF_FUZZERS, f"{path.name} names {sorted(used - known)}"


def test_every_environment_variable_is_on_a_page() -> None:
    texts = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    named: set[str] = set()
    folders = (SOURCE, ROOT / "tools", ROOT / "tests")
    for path in (file for folder in folders for file in folder.rglob("*.py")):
        found = set(VARIABLES.findall(path.read_text(encoding="utf-8")))
        named |= found if path.is_relative_to(SOURCE) else {n for n in found if "HEADRACE" in n}
    assert {"HEADRACE_API_KEY", "HEADRACE_ADMIN_API_KEY", "HEADRACE_ASSETS"} <= named
    assert [name for name in sorted(named) if name not in texts] == []


def test_targets_of_the_makefile_are_told() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    texts = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert len(targets) >= 6
    assert [name for name in sorted(targets - {"clean"}) if f"make {name}" not in texts] == []


def test_tools_that_pages_name_are_there() -> None:
    for path in PAGES:
        if path.name == "compatibility.md":  # of files of other programs
            continue
        text = path.read_text(encoding="utf-8")
        for module in re.findall(r"python -m ((?:tools|training|benchmarks|tests)\.[\w.]+)", text):
            file = ROOT / module.replace(".", "/")
            there = file.with_suffix(".py").is_file() or (file / "__main__.py").is_file()
            assert there, f"{path.name}: {module}"
        for name in re.findall(
            r"(?:python |`)((?:tools|training|benchmarks)/[\w/]+\.(?:py|sh))", text
        ):
            assert (ROOT / name).is_file(), f"{path.name}: {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_table_has_its_head(path: Path) -> None:
    """A blank line in a table leaves the rows below it as raw text."""
    lines = ["", *prose(path.read_text(encoding="utf-8")).splitlines(), ""]
    begun = [at for at, line in enumerate(lines) if line[:1] == "|" and lines[at - 1][:1] != "|"]
    assert [lines[at] for at in begun if not re.match(r"\|[ :-]*-", lines[at + 1])] == []


@pytest.mark.long
def test_the_generated_pages_are_current(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_docs.py", "--check"])
    assert generate_docs.main() == 0, capsys.readouterr().err
