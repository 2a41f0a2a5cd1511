"""Writes the pages of PAGES from code and data; with --check, fails on a stale one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec

from headrace.catalog import Catalog
from headrace.catalog.coverage import (
    ANSWERS,
    DOES,
    ITEM_KINDS,
    Coverage,
    Document,
    count_does,
    load_coverage,
    summary,
)
from headrace.cli.main import COMMANDS, cli
from headrace.config import EngineConfig, Flag, ServerConfig, flags_of
from headrace.config.nested_reference import sections_of
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.plan.lint.checks import CHECKS
from tools.families_table import families_table
from tools.kinds_page import kinds_page
from tools.schema_keywords import page as schema_keywords_page

README = Path(__file__).resolve().parent.parent / "README.md"
DOCS = README.parent / "docs"
COMPARED = ("<!-- comparisons: make docs -->", "<!-- /comparisons -->")
TECHNIQUES = ("<!-- techniques: make docs -->", "<!-- /techniques -->")
DOES_MEANING = (
    ("runs", "headrace executes it", "tests and commands"),
    ("part", "headrace executes some of it; what is missing is listed below", "tests and commands"),
    (
        "plans",
        "computed by `plan`, simulated, or checked by `plan lint`",
        "tests and commands of plan",
    ),
    ("knows", "rows of the catalog and pages only", "the rows"),
    ("rejected", "not taken over", "the reason, listed below"),
)


def _default(flag: Flag) -> str:
    if flag.kind == "bool":
        return "" if flag.default is None else "on" if flag.default else "off"
    return "" if flag.default in (None, "", ()) else f"`{flag.default}`"


def _values(flag: Flag) -> str:
    values = ", ".join(f"`{choice}`" for choice in flag.choices) or flag.kind
    if flag.repeated:
        values += ", repeatable"
    return f"{values} {flag.limits}".strip()


def _flag(flag: Flag) -> str:
    if flag.kind == "bool":
        return f"`{flag.flag}`, `--no-{flag.flag.removeprefix('--')}`"
    if flag.name == "model":
        return "`MODEL` (positional)"
    return ", ".join(f"`{name}`" for name in (flag.flag, *flag.aliases))


def flags_page() -> str:
    """docs/flags.md."""
    lines = [
        "# Flags and settings",
        "",
        "Every setting is a flag (`--max-model-len 4096`) and a line of the YAML file that",
        "`--config` names (`max-model-len: 4096`). Flags win over the file. Names are those of",
        "`vllm serve` where the meaning is the same; integers may be written `32k` (32,000) or",
        "`32K` (32,768), and so with m, g and t. Flags are never abbreviated. This page is",
        "generated: `make docs`.",
    ]
    sections: list[tuple[str, type[msgspec.Struct]]] = [
        ("Engine: `serve`, `chat`, `generate`", EngineConfig),
        ("Server: `serve`", ServerConfig),
    ]
    for title, config in sections:
        lines += [
            "",
            f"## {title}",
            "",
            "| flag | values | default | meaning |",
            "|---|---|---|---|",
        ]
        for flag in flags_of(config):
            cells = (_flag(flag), _values(flag), _default(flag), flag.help)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """docs/commands.md: what every command does and takes beside the settings of flags.md."""
    settings = {flag.name for config in (EngineConfig, ServerConfig) for flag in flags_of(config)}
    lines = [
        "# Commands",
        "",
        "`headrace COMMAND --help` says the same and lists the settings of [flags.md](flags.md).",
        "Errors are one line on stderr and exit status 1; wrong usage is exit status 2.",
        "This page is generated: `make docs`.",
    ]
    context = click.Context(cli, info_name="headrace")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        lines += _command_lines(f"headrace {name}", command, settings)
    return "\n".join(lines) + "\n"


def _command_lines(name: str, command: click.Command, settings: set[str]) -> list[str]:
    """One command; of a group every command in it."""
    usage = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
    lines = ["", f"## {name}", "", f"`{name} {usage}`", ""]
    lines += _help_lines(command.help or "")
    if isinstance(command, click.Group):
        for inner in command.commands:
            lines += _command_lines(f"{name} {inner}", command.commands[inner], settings)
        return lines
    # A command that takes settings has --config too; others may have options of the same names.
    takes = any(parameter.name == "config_file" for parameter in command.params)
    options = [
        parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        and not parameter.hidden
        and not (takes and parameter.name in settings)
    ]
    lines += ["", "| option | meaning |", "|---|---|"]
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in option.opts)
        lines.append(f"| {flags} | {option.help} |")
    if takes:
        lines += ["", "It takes the settings of [flags.md](flags.md)."]
    return lines


def _help_lines(text: str) -> list[str]:
    """A command's help; what it keeps unwrapped (after \\b) is shown as it is typed."""
    lines: list[str] = []
    fenced = False
    for line in (one.strip() for one in text.strip().splitlines()):
        if line == "\b":
            lines.append("```")
            fenced = True
            continue
        if fenced and not line:
            lines.append("```")
            fenced = False
        lines.append(line)
    return [*lines, "```"] if fenced else lines


def coverage_page() -> str:
    """docs/coverage.md: what headrace does with each item of the background documents."""
    coverage = load_coverage()
    lines = [
        "# Coverage of the background documents",
        "",
        summary(coverage.items),
        "Of them, " + _technical_summary(coverage),
        "",
        "The catalog began with five documents on serving language models. Every section, table,",
        "table row, formula, block of code, decision tree, checklist item and pitfall of them, and",
        "every passage between, is an item of `src/headrace/catalog/data/coverage.toml`. Its id is",
        "made of the document and the first line there.",
        "",
        "| value | meaning | shown by |",
        "|---|---|---|",
        *(_row(cells) for cells in DOES_MEANING),
        "",
        "An open model *runs* when its config as published is read and every part of its",
        "architecture is computed; what ran here are small models of that architecture. A provider",
        "*runs* when the gateway here is tested with recorded traffic of it; no provider was ever",
        "called from here. A technique whose claimed gain is not measured here runs in part, and",
        "so does a heading or a table with a part under it.",
        "",
        *_recorded(coverage),
        "",
        "`headrace catalog coverage --does part` lists items with what is missing, `--topic` and",
        "`--document` list others, `--json` has everything. What runs may only grow: a test holds",
        "the list. This page is generated: `make docs`.",
    ]
    groups = {
        "document": {
            _document_name(document): coverage.of(name)
            for name, document in coverage.documents.items()
        },
        "topic": coverage.topics(),
    }
    for title, rows in groups.items():
        lines += ["", f"## By {title}", "", _row([title, "items", *DOES]), "|---" * 7 + "|"]
        lines += [
            _row([name, len(items), *count_does(items).values()]) for name, items in rows.items()
        ]
    lines += ["", "## In part", "", _row(["item", "what", "topic", "missing"]), "|---" * 4 + "|"]
    lines += [
        _row([item.id, item.name, item.topic, item.missing])
        for item in coverage.items
        if item.does == "part"
    ]
    lines += [
        "",
        "## Where the facts are",
        "",
        "A fact is in rows of the catalog, done by a command, held by a test, or rejected.",
        "",
        _row(["document", "items", *ANSWERS]),
        "|---" * (len(ANSWERS) + 2) + "|",
    ]
    for name, document in coverage.documents.items():
        counts = coverage.answers_of(name)
        lines.append(_row([_document_name(document), sum(counts.values()), *counts.values()]))
    lines += [
        "",
        "## Kinds",
        "",
        _row(["document", *ITEM_KINDS]),
        "|---" * (len(ITEM_KINDS) + 1) + "|",
        *(_row([name, *coverage.kinds_of(name).values()]) for name in coverage.documents),
        "",
    ]
    return "\n".join([*lines, *_rejected(coverage)]) + "\n"


def _recorded(coverage: Coverage) -> list[str]:
    """What of the evidence needs archives that a clone does not have."""
    items = [
        item for item in coverage.items
        if any("/cassettes/" in shown_by or "/test_recorded" in shown_by for shown_by in item.by)
    ]  # fmt: skip
    return [
        f"The recorded traffic that shows {len(items)} of the items is not part of the repository:",
        "their tests replay archives in the folder that `HEADRACE_ASSETS` names, and in a clone",
        "without it they are skipped. So are tests that read published configs, traces and real",
        "model files. `pytest --no-skips` fails where one was skipped.",
    ]


def _technical_summary(coverage: Coverage) -> str:
    """The counts of items whose rows are techniques, storage kinds or open models."""
    known = Catalog.load()
    rows = {row.id for row in (*known.techniques, *known.quantizations)}
    rows |= {row.id for row in known.models if row.num_layers is not None}
    counts = count_does(item for item in coverage.items if rows.intersection(item.rows))
    return (
        f"{sum(counts.values())} are about a technique, a storage kind or an open model: "
        f"{counts['runs']} run, {counts['part']} run in part, {counts['plans']} are planned, "
        f"{counts['knows']} only known."
    )


def _document_name(document: Document) -> str:
    return f"{document.id}, repeats {document.repeats}" if document.repeats else document.id


def techniques_table() -> str:
    """The table of README: what runs here, what is planned, what is not yet there."""
    lines = ["| technique | runs here | `plan` estimates it | not yet |", "|---|---|---|---|"]
    order = ("runs", "part")
    shown = [capability for capability in Catalog.load().capabilities if capability.readme]
    shown.sort(key=lambda row: order.index(row.does) if row.does in order else len(order))
    for capability in shown:
        runs = {"runs": "yes", "part": f"in part: {capability.missing}"}
        plan = f"`{capability.plan.removeprefix('headrace ')}`" if capability.plan else ""
        not_yet = "" if capability.does in runs else "not yet"
        lines.append(_row([capability.name, runs.get(capability.does, ""), plan, not_yet]))
    return "\n".join(lines) + "\n"


def readme_page() -> str:
    """README.md: what stands in it, with the table between its two marks."""
    return _between_marks(README, TECHNIQUES, techniques_table())


def models_page() -> str:
    """docs/models.md: what stands in it, with the table of comparisons between its two marks."""
    return _between_marks(DOCS / "models.md", COMPARED, families_table())


def _between_marks(page: Path, marks: tuple[str, str], table: str) -> str:
    before, mark, rest = page.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not mark or not end:
        raise SystemExit(f"{page.name} lacks {' or '.join(marks)}, between which its table is")
    return f"{before}{mark}\n{table}{end}{after}"


def _rejected(coverage: Coverage) -> list[str]:
    lines = ["## Rejected", "", "| item | what | why | contradiction |", "|---|---|---|---|"]
    return lines + [
        _row([one.id, one.name, one.rejected, one.contradiction])
        for one in coverage.items
        if one.rejected
    ]


def lint_page() -> str:
    """docs/plan-lint.md: what stands in it, and below it the table of every check."""
    heading = "## The checks"
    written, _, _ = (DOCS / "plan-lint.md").read_text(encoding="utf-8").partition(heading)
    lines = [f"{written}{heading}", "", "This table is generated: `make docs`.", ""]
    lines += ["| id | severity | finds | looks at | needs beside it | remedy | source |",
              "|---|---|---|---|---|---|---|"]  # fmt: skip
    for one in CHECKS:
        looks = ", ".join(one.looks_at)
        sources = ", ".join(f"`{source}`" for source in one.sources)
        lines.append(
            _row([f"`{one.id}`", one.severity, one.title, looks, one.needs, one.remedy, sources])
        )
    return "\n".join(lines) + "\n"


def contradictions_page() -> str:
    """docs/contradictions.md: what each source says, what is used and why."""
    known = Catalog.load()
    lines = [
        "# Where sources disagree",
        "",
        f"The catalog began with five documents. On {len(known.contradictions)} subjects they",
        "disagree: with each other, with themselves, with the thing itself, or with arithmetic.",
        "Here is what each states, what headrace goes by, and why. `headrace catalog show C19`",
        "lists the facts that a contradiction is about; `headrace plan explain` names it beside",
        "every figure computed from such a fact. This page is generated: `make docs`.",
        "",
        _row(["id", "subject", "stated", "used", "why"]),
        "|---" * 5 + "|",
    ]
    for one in known.contradictions.values():
        said = "; ".join(f"{each.says} ({each.source})" for each in one.statements)
        lines.append(_row([one.id, one.subject, said, one.used, one.why]))
    lines += ["", "## Sources", "", _row(["source", "title", "of"]), "|---" * 3 + "|"]
    named = {each.source for one in known.contradictions.values() for each in one.statements}
    for id in sorted(named):
        source = known.sources[id]
        lines.append(_row([source.id, source.title, source.date.isoformat()]))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def gateway_settings_page() -> str:
    """docs/gateway-settings.md: every setting of the gateway's file."""
    lines = [
        "# Settings of gateway.yaml",
        "",
        "To start with the file: [gateway.md](gateway.md). Unknown names are errors that give the",
        "line and the nearest known name. Secrets are `env:NAME`, `file:PATH` or, with a warning,",
        "the secret itself.",
        "This page is generated: `make docs`.",
    ]
    for section in sections_of(GatewaySettings):
        lines += ["", f"## {section.path or 'The file'}", "", _escaped(section.text), ""]
        lines += ["| name | values | default | meaning |", "|---|---|---|---|"]
        for one in section.settings:
            cells = (f"`{one.name}`", one.values, one.default, one.meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Names in braces and angles are not markup."""
    return text.replace("<", "&lt;")


PAGES = {"flags.md": flags_page, "gateway-settings.md": gateway_settings_page,
         "commands.md": commands_page, "coverage.md": coverage_page,
         "plan-lint.md": lint_page, "contradictions.md": contradictions_page,
         "models.md": models_page,
         "schema_keywords.md": schema_keywords_page, "storage-kinds.md": kinds_page,
         "../README.md": readme_page}  # fmt: skip


def main() -> int:
    """Write or check every page; 1 when a checked page is stale."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a stale page")
    check = parser.parse_args().check
    stale = []
    for name, make in PAGES.items():
        path, text = (DOCS / name).resolve(), make()
        if check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            stale.append(name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"stale: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
