"""`headrace catalog`: what is printed, in which width, and what is said of a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.catalog.shown_value import with_unit
from headrace.cli.catalog.group import KINDS, catalog
from headrace.errors import CatalogError, HeadraceError
from tests.catalog.files import folder

CHANGED = '\n[[hardware]]\nid = "h100-sxm"\npower_w = 500\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command of the group in 80 columns, with nothing of this user's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(catalog, arguments)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return command


def refused(run: Any, *arguments: str) -> str:
    result = run(*arguments, code=1)
    assert isinstance(result.exception, HeadraceError)
    return str(result.exception)


def fits(text: str) -> None:
    for line in text.splitlines():
        assert len(line.rstrip()) <= 80, line


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_fits_80_columns(run: Any, kind: str) -> None:
    from headrace.catalog import Catalog

    output = run("list", kind).output
    fits(output)
    rows = Catalog.load().table(kind)
    assert output.startswith(f"{kind} ({len(rows)})")
    # Long ids go on in the next line, so that the page has all of them without the breaks.
    words = "".join(
        line.split(" ")[1] if line.startswith(" ") else line for line in output.split("\n")
    )
    missing = [row.id for row in rows if row.id not in output and row.id not in words]
    assert missing == []


def test_a_list_of_all_kinds_as_json(run: Any) -> None:
    lines = [json.loads(line) for line in run("list", "--json").output.splitlines()]
    assert {line["kind"] for line in lines} == set(KINDS)
    assert len(lines) > 450
    h100 = next(line for line in lines if line["id"] == "h100-sxm")
    assert h100["facts"]["bandwidth_bytes_per_s"] == {
        "value": 3.35e12, "unit": "byte/s", "source": "aiconfigurator", "as_of": "2026-08-01",
        "confidence": "high", "disputed_by": [], "note": "", "origin": "hardware/nvidia.toml",
    }  # fmt: skip


def test_a_filter(run: Any) -> None:
    output = run("list", "--filter", "kimi k2.5").output
    assert "kimi-k2.5" in output and "price (1)" in output and "kimi-k3" not in output
    assert "no hardware matches 'nothing like it'" in refused(
        run, "list", "hardware", "--filter", "nothing like it"
    )


def test_a_row_with_its_disputes_and_sources(run: Any) -> None:
    output = run("show", "H100").output
    fits(output)
    for told in (
        "bandwidth_bytes_per_s", "3.35 TB/s", "2026-08-01", "C37 Speed of NVLink",
        "900 GB/s are both directions", "System files of NVIDIA aiconfigurator", "$2.69/h",
    ):  # fmt: skip
        assert told in output, told


def test_a_row_as_json(run: Any) -> None:
    said = json.loads(run("show", "claude-opus-4.6.anthropic", "--json").output)
    assert said["kind"] == "price"
    assert said["facts"]["input_usd_per_million_tokens"]["value"] == 5
    assert [one["id"] for one in said["disputes"]] == ["C01"]
    assert {one["id"] for one in said["sources"]} == {"litellm-prices", "models-dev"}


def test_an_unknown_row(run: Any) -> None:
    message = refused(run, "show", "qwen3-30b")
    assert "no 'qwen3-30b' in the catalog; did you mean 'qwen3-30b-a3b'" in message


def test_a_contradiction(run: Any) -> None:
    output = run("show", "c19").output
    fits(output)
    assert "Q4_K_M 4.9" in output and "quantization q4-k-m, bits_per_weight" in output
    said = json.loads(run("show", "C19", "--json").output)
    assert {"kind": "quantization", "id": "q8-0", "field": "bits_per_weight"} in said["rows"]


def test_the_register(run: Any) -> None:
    output = run("contradictions").output
    fits(output)
    assert all(f" C{number:02} " in output for number in range(1, 73))
    assert len(json.loads(run("contradictions", "--json").output)) == 72
    few = run("contradictions", "--filter", "NVLink").output
    assert "C37" in few and "C01" not in few
    assert "omit a word" in refused(run, "contradictions", "--filter", "no such thing")


def test_the_coverage_leads_with_its_counts(run: Any) -> None:
    from headrace.catalog.coverage import load_coverage, summary

    coverage = load_coverage()
    output = run("coverage").output
    # The sentence of the counts is as long as it is; tables fit.
    first, _, tables = output.partition("\n")
    assert first == summary(coverage.items)
    fits(tables)
    for word in ("An item is a section", "\n  runs ", "\n  part ", "\n  plans ", "\n  knows "):
        assert word in tables
    for name in (*coverage.documents, *coverage.topics()):
        assert f"\n {name} " in tables, name


def test_items_are_listed_with_what_is_missing_and_what_shows_them(run: Any) -> None:
    from headrace.catalog.coverage import load_coverage

    output = run("coverage", "--does", "part", "--topic", "scheduling").output
    shown = [
        item for item in load_coverage().items if item.does == "part" and item.topic == "scheduling"
    ]
    assert output.startswith(f"{len(shown)} items\n")
    joined = " ".join(output.split())
    for item in shown:
        assert f"\n{item.id}\n" in output
        assert f"missing: {item.missing}" in joined
        for shown_by in item.by:
            assert shown_by in "".join(output.split())
    rejected = run("coverage", "--does", "rejected", "--document", "condensed-reference").output
    assert "no such option of OpenRouter" in " ".join(rejected.split())
    none = run("coverage", "--does", "runs", "--topic", "parallelism").output
    assert "omit a filter" in none
    assert "did you mean 'speculation'?" in refused(run, "coverage", "--topic", "spekulation")
    assert "--document 'guide' does not exist" in refused(run, "coverage", "--document", "guide")


def test_the_coverage_as_json(run: Any) -> None:
    found = json.loads(run("coverage", "--json").output)
    own = [document for document in found["documents"] if not document["repeats"]]
    assert sum(document["items"] for document in own) == found["total"] == len(found["items"])
    assert sum(topic["items"] for topic in found["topics"]) == found["total"]
    for document in found["documents"]:
        for counts in ("kinds", "answers", "does"):
            assert sum(document[counts].values()) == document["items"]
    for topic in found["topics"]:
        assert sum(topic["does"].values()) == topic["items"]
    assert all(item["does"] and item["topic"] and item["section"] for item in found["items"])
    few = json.loads(run("coverage", "--does", "plans", "--topic", "costs", "--json").output)
    assert few["does"] == found["does"]
    assert {(item["does"], item["topic"]) for item in few["items"]} == {("plans", "costs")}


@pytest.mark.long
def test_without_own_files_nothing_differs(run: Any) -> None:
    assert run("diff").output == "no difference\n"


@pytest.mark.long
def test_what_own_files_change(run: Any, tmp_path: Path) -> None:
    folder(tmp_path / "config" / "headrace" / "catalog", CHANGED)
    output = run("diff").output
    fits(output)
    assert "h100-sxm" in output and "700 W" in output and "500 W" in output


@pytest.mark.long
def test_what_own_files_change_is_shown(run: Any, tmp_path: Path) -> None:
    first = folder(tmp_path / "a", CHANGED)
    folder(tmp_path / "config" / "headrace" / "catalog", CHANGED.replace("500", "600"))
    assert "600 W" in run("show", "h100").output
    assert "500 W" in run("show", "h100", "--catalog", str(first)).output


def test_what_a_folder_changes(run: Any, tmp_path: Path) -> None:
    first = folder(tmp_path / "a", CHANGED)
    second = folder(tmp_path / "b", CHANGED.replace("500", "600"))
    assert "700 W" in run("diff", str(first), "--kind", "hardware").output
    between = run("diff", str(first), str(second), "--kind", "hardware").output
    assert "500 W" in between and "600 W" in between and "700 W" not in between
    assert "no such folder" in refused(run, "diff", str(tmp_path / "absent"))
    assert run("diff", str(first), "--kind", "model").output == "no difference\n"
    run("diff", "a", "b", "c", code=2)


def test_what_a_folder_changes_as_json(run: Any, tmp_path: Path) -> None:
    differences = json.loads(run("diff", str(folder(tmp_path / "a", CHANGED)), "--json").output)
    assert [(each["row"], each["field"], each["old"]["value"]) for each in differences] == [
        ("h100-sxm", "power_w", 700)
    ]


def test_what_changed_between_days(run: Any) -> None:
    output = run("diff", "--from", "2025-05-01", "--to", "2025-07-01").output
    fits(output)
    assert "google gemini-2.5-flash" in output and "$0.6/M" in output and "$2.5/M" in output
    for wrong in (
        ("--from", "2025-05-01"), ("--from", "May", "--to", "June"),
        ("--from", "2025-05-01", "--to", "2025-05-02", "--kind", "model"),
    ):  # fmt: skip
        run("diff", *wrong, code=2)


def test_prices_are_imported(run: Any, tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    entry = {"litellm_provider": "acme", "mode": "chat", "input_cost_per_token": 1e-6}
    table.write_text(json.dumps({
        "acme/m-1": entry | {"cost_per_moon": 3}, "pictures": entry | {"mode": "image_generation"},
        "other": entry | {"litellm_provider": "other"},
    }), encoding="utf-8")  # fmt: skip
    result = run("import", "litellm", str(table), "--provider", "acme", "--as-of", "2026-07-24")
    written = tmp_path / "config" / "headrace" / "catalog" / "litellm.toml"
    assert result.stdout == f"1 prices written to {written}\n"
    assert "left out 1: mode 'image_generation'" in result.stderr
    assert "no place for: cost_per_moon (1)" in result.stderr
    said = json.loads(run("show", "litellm-acme-m-1", "--json").output)
    assert said["facts"]["input_usd_per_million_tokens"]["value"] == 1
    assert said["sources"][0]["date"] == "2026-07-24"
    assert [path.name for path in written.parent.iterdir()] == ["litellm.toml"]

    other = tmp_path / "x" / "mine.toml"
    reply = run("import", "litellm", str(table), "--output", str(other), "--json").output
    assert json.loads(reply)["unknown_fields"] == {"cost_per_moon": 1}
    assert json.loads(reply)["rows"] == 2 and other.is_file()
    meant = refused(run, "import", "litellm", str(table), "--provider", "acmee")
    assert "no prices of acmee; did you mean 'acme'?" in meant
    assert "No such file" in refused(run, "import", "litellm", str(tmp_path / "absent"))
    assert "cannot be read" in refused(run, "import", "models.dev", str(tmp_path / "absent"))


def test_a_file_in_the_way(run: Any, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("", encoding="utf-8")
    table = tmp_path / "p.json"
    table.write_text('{"m": {"litellm_provider": "a", "input_cost_per_token": 1}}')
    assert "cannot be written" in refused(run, "import", "litellm", str(table))


def test_text_of_a_stranger_does_nothing_to_a_terminal(run: Any, tmp_path: Path) -> None:
    own = folder(tmp_path / "a", '\n[[constant]]\nid = "x"\nname = "X\\u001b[2J"\ntopic = "slo"\n')
    output = run("show", "x", "--catalog", str(own)).output
    assert "\x1b" not in output and "\\x1b[2J" in output


@pytest.mark.parametrize("name", ["list", "show", "diff", "import", "contradictions", "coverage"])
def test_help_says_what_a_command_does(run: Any, name: str) -> None:
    output = run(name, "--help").output
    assert "Usage:" in output and "--json" in output and len(output) > 300


def test_kinds_are_those_there_are() -> None:
    from headrace.catalog.rows import KINDS as ROWS

    assert tuple(ROWS) == KINDS
    assert issubclass(CatalogError, HeadraceError)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (85_899_345_920, "byte", "80 GiB (85.9 GB)"),
        (3.35e12, "byte/s", "3.35 TB/s"),
        (1979e12, "FLOP/s", "1.979 PFLOP/s"),
        (8_030_261_248, "parameters", "8.03 B"),
        (0.045, "s", "45 ms"),
        (1e-5, "s", "10 us"),
        (0.8, "share", "80 %"),
        (2022, "", "2022"),
        (True, "", "yes"),
        (("a", "b"), "", "a, b"),
        (1.25, "USD/1M tokens", "$1.25/M"),
    ],
)
def test_values_as_people_read_them(value: Any, unit: str, text: str) -> None:
    assert with_unit(value, unit) == text
