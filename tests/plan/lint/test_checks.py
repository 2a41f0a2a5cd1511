"""The register of checks: documented, sourced, answering what the documents name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.catalog import Catalog
from headrace.catalog.coverage import load_coverage
from headrace.catalog.rows import KINDS
from headrace.errors import ConfigError
from headrace.plan.lint.checks import CHECKS, chosen
from headrace.plan.lint.finding import Evidence, Found, Needs
from headrace.plan.lint.known import LintOptions
from headrace.plan.lint.lint import lint
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.targets import Targets, read_targets

PAGE = Path(__file__).resolve().parents[3] / "docs" / "plan-lint.md"


def test_ids_are_unique_and_every_check_is_documented() -> None:
    ids = [one.id for one in CHECKS]
    assert len(set(ids)) == len(ids) >= 40
    text = PAGE.read_text(encoding="utf-8")
    assert [id for id in ids if f"| `{id}` |" not in text] == []


def test_every_source_is_there() -> None:
    items = {one.id for one in load_coverage().items}
    catalog = Catalog.load()
    rows = {row.id for kind in KINDS for row in catalog.table(kind)}
    for one in CHECKS:
        assert one.sources and one.remedy and one.title, one.id
        assert [source for source in one.sources if source not in items | rows] == [], one.id


def test_what_the_documents_name_is_checked() -> None:
    """Pitfalls and items of checklists that the coverage answers with this command."""
    named = {source for one in CHECKS for source in one.sources}
    items = [
        one
        for one in load_coverage().items
        if one.command == "headrace plan lint" and one.kind != "section"
    ]
    assert len(items) >= 30
    assert [one.id for one in items if one.id not in named] == []


def test_without_anything_nothing_is_passed_in_silence() -> None:
    catalog = Catalog.load()
    for one in CHECKS:
        assert isinstance(one.run(Subject(catalog=catalog)), Needs), one.id


def test_checks_are_chosen() -> None:
    assert [one.id for one in chosen(["L-rtn", "L-prefix"], ["L-rtn"])] == ["L-prefix"]
    assert len(chosen([], ["L-rtn"])) == len(CHECKS) - 1
    with pytest.raises(ConfigError, match="did you mean L-prefix"):
        chosen(["L-prefx"], [])
    with pytest.raises(ConfigError, match="leave no check"):
        chosen(["L-rtn"], ["L-rtn"])


def test_a_finding_has_evidence() -> None:
    with pytest.raises(ValueError, match="no evidence"):
        Found("wrong", (), "mend it")
    assert Found("wrong", (Evidence("n", 1, "here"),), "mend it").severity is None


def test_each_engine_is_looked_at(tmp_path: Path) -> None:
    script = tmp_path / "both.sh"
    script.write_text("vllm serve a --enforce-eager\nvllm serve b\nvllm serve c --enforce-eager\n")
    given = LintOptions(catalog=Catalog.load(), environ={})
    report = lint(read_targets([str(script)]), given, chosen(["L-kernels", "L-cold"], []))
    assert [one.found.evidence[0].where for one in report.findings] == [
        f"{script}:1", f"{script}:3",
    ]  # fmt: skip
    assert [one.check.id for one in report.not_checked] == ["L-cold"]
    assert report.clean == () and len(report.at_or_above("error")) == 0
    assert lint(Targets(), given, chosen(["L-kernels"], [])).not_checked
