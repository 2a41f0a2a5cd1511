"""What the catalog says of headrace: only what tests execute, and nothing typed beside it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog
from headrace.catalog.capabilities import (
    Capability,
    load_capabilities,
    with_headrace,
)
from headrace.catalog.catalog import DATA
from headrace.catalog.coverage import load_coverage
from headrace.catalog.files import Written
from headrace.errors import CatalogError
from headrace.ops import BACKENDS
from headrace.weights.codecs import CODECS
from tests.catalog.test_coverage import _exists, _is_test

FILE = DATA / "capabilities.toml"
# What "Q4_0 to Q5_1", "K-quants", "IQ1 to IQ3" and the like stand for in the names of capabilities.
GGUF_KINDS = {
    "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "MXFP4", "NVFP4", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
    "TQ1_0", "TQ2_0", "Q1_0", "Q2_0",
}  # fmt: skip
ONE = """
[[capability]]
name = "Batching"
does = "runs"
by = ["tests/engine/test_core.py"]
plan = "headrace plan fit"
items = ["cr-106"]
techniques = ["continuous-batching"]
"""


@pytest.fixture(scope="module")
def known() -> Catalog:
    return Catalog.load()


def test_tests_and_commands_are_there(known: Catalog) -> None:
    assert len(known.capabilities) >= 25
    for capability in known.capabilities:
        for test in capability.by:
            assert _is_test(test), f"{capability.name}: no {test}"
        assert not capability.plan or _exists(capability.plan), capability.name
        assert not capability.plan or capability.plan.startswith("headrace plan ")


def test_the_coverage_says_the_same(known: Catalog) -> None:
    items = {item.id: item for item in load_coverage().items}
    for capability in known.capabilities:
        for item_id in capability.items:
            does = items[item_id].does
            assert does == capability.does, f"{capability.name}: {item_id} says {does}"


def test_every_capability_has_items_or_says_why_not(known: Catalog) -> None:
    assert sum(bool(capability.items) for capability in known.capabilities) > 20
    for capability in known.capabilities:
        assert bool(capability.items) != bool(capability.no_items), capability.name


def test_names_and_rows_are_there_once(known: Catalog) -> None:
    for field in ("techniques", "quantizations", "formats", "features"):
        words = [word for one in known.capabilities for word in getattr(one, field)]
        assert len(set(words)) == len(words), field
    names = [capability.name for capability in known.capabilities]
    assert len(set(names)) == len(names)
    for capability in known.capabilities:
        assert all(row in known.techniques for row in capability.techniques), capability.name


def test_a_technique_has_headrace_exactly_where_it_runs(known: Catalog) -> None:
    runs = {
        row
        for capability in known.capabilities
        if capability.does == "runs"
        for row in (*capability.techniques, *capability.quantizations)
    }
    supported = {
        row.id
        for kind in ("technique", "quantization")
        for row in known.table(kind)
        if "headrace" in row.runtimes
    }
    assert supported == runs
    assert "multi-lora" not in supported and "continuous-batching" in supported
    fact = known.techniques["continuous-batching"].fact("runtimes")
    assert "headrace: tests/engine/scheduling/test_scheduler.py" in fact.note
    assert fact.source != "own-tests", "the other runtimes keep their source"
    assert known.techniques["preemption"].fact("runtimes").source == "own-tests"


def test_no_file_names_headrace_as_a_supporter() -> None:
    for path in DATA.glob("*/*.toml"):
        for kind, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for row in rows if isinstance(rows, list) else ():
                assert "headrace" not in str(row.get("runtimes", "")), (
                    f"{path.name}: {row['id']}: what headrace supports is in capabilities.toml"
                )
                if kind == "runtime" and row["id"] == "headrace":
                    assert not {"formats", "features"} & set(row), path.name


def test_the_runtime_row_is_what_the_code_has(known: Catalog) -> None:
    row = known.runtimes["headrace"]
    assert row.formats == ("GGUF", "safetensors")
    assert "continuous batching" in row.features and len(row.features) >= 6
    # The torch backend has not run on a device yet (docs/gpu.md), so none is recommended for it.
    assert set(row.backends) == set(BACKENDS) - {"reference", "torch"}
    assert {"F32", "F16", "BF16"} | GGUF_KINDS == set(CODECS)


def test_a_row_that_headrace_runs_is_in_the_files() -> None:
    capability = Capability(name="x", does="runs", by=("tests/x.py",), techniques=("gone",))
    with pytest.raises(CatalogError, match="no technique gone"):
        with_headrace("technique", [], [capability])


@pytest.mark.parametrize(
    ("said", "value", "note"),
    [
        ({}, ["headrace"], "headrace: tests/x.py."),
        ({"runtimes": ["vllm"]}, ["headrace", "vllm"], "headrace: tests/x.py."),
        (
            {"runtimes": {"value": ["vllm"], "note": "Not by itself."}},
            ["headrace", "vllm"],
            "Not by itself. headrace: tests/x.py.",
        ),
    ],
)
def test_a_supported_row(said: dict[str, Any], value: list[str], note: str) -> None:
    capability = Capability(name="x", does="runs", by=("tests/x.py",), techniques=("t",))
    rows = [Written("technique", "t", said, {}, "f"), Written("technique", "u", said, {}, "f")]
    first, second = with_headrace("technique", rows, [capability])
    assert (first.table["runtimes"]["value"], first.table["runtimes"]["note"]) == (value, note)
    assert second is rows[1]
    planned = Capability(name="x", does="plans", plan="headrace plan fit", techniques=("t",))
    assert with_headrace("technique", rows, [planned]) == rows


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('by = ["tests/engine/test_core.py"]\n', "", "by names the tests of what runs"),
        ('does = "runs"', 'does = "plans"', "by names the tests of what runs"),
        ('does = "runs"', 'does = "part"', "what is missing go together"),
        ('does = "runs"', 'does = "ran"', "Invalid enum value 'ran'"),
        ("techniques", "technics", "unknown field `technics`"),
        ('items = ["cr-106"]\n', "", "no_items gives the reason"),
        ("items = [", 'no_items = "x"\nitems = [', "no_items gives the reason"),
        ('does = "runs"\nby = ["tests/engine/test_core.py"]\nplan = "headrace plan fit"\n',
         'does = "plans"\n', "has no plan"),
        ('does = "runs"\nby = ["tests/engine/test_core.py"]\n',
         'does = "plans"\nfeatures = ["x"]\n', "only what runs is a format or a feature"),
        ("[[capability]]", "[[capability", "not valid TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert ONE.count(old) == 1
    path = tmp_path / "capabilities.toml"
    path.write_text(ONE.replace(old, new), encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        load_capabilities(path)
    assert message in str(caught.value) and "capabilities.toml" in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="No such file"):
        load_capabilities(tmp_path / "absent.toml")


def test_the_shipped_file_is_read(known: Catalog) -> None:
    assert load_capabilities(FILE) == known.capabilities
