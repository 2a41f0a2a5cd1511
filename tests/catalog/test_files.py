"""Faults in files people write: each is told with file, row, field, value and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.catalog import Catalog
from headrace.catalog.files import read_catalog_file
from headrace.catalog.rows import KINDS
from headrace.errors import CatalogError
from tests.catalog.files import DEFAULTS, SOURCE, catalog

ROW = '\n[[hardware]]\nid = "mine"\nname = "Mine"\n'


def fault(path: Path, text: str, *, head: str = DEFAULTS + SOURCE, kind: str = "hardware") -> str:
    """What is said of `text`; the name of the file always is."""
    known = catalog(path, text, head=head)
    with pytest.raises(CatalogError) as raised:
        known.table(kind)
    message = str(raised.value)
    assert "mine.toml" in message
    return message


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bandwith_bytes_per_s = 1.0", "did you mean 'bandwidth_bytes_per_s'?"),
        ('memory_bytes = "80 furlongs"', "memory_bytes: '80 furlongs': write a number"),
        ("memory_bytes = -1", "memory_bytes: -1:"),
        ("memory_bytes = 1.5", "memory_bytes: 1.5:"),
        ('category = "toaster"', "category: 'toaster': write one of gpu, soc"),
        ('unified_memory = "yes"', "unified_memory: 'yes':"),
        ('memory_bytes = { value = 5, unit = "GB" }', "omit it and write the unit in the value"),
        ("memory_bytes = { vale = 5 }", "unknown key 'vale'; did you mean 'value'?"),
        ('memory_bytes = { unit = "byte" }', "has no value"),
        ("figures.speed = 3", 'has no unit; give it one, e.g. unit = "x"'),
        ('figures.speed = { value = 3, unit = "tokns/s" }', "did you mean 'tokens/s'?"),
        ('figures.speed = { value = [3, 2], unit = "x" }', "ends at 2"),
        ("figures = 3", "write figures.NAME ="),
        ('power_w = { value = 5, as_of = "yesterday" }', "write it as 2026-03-01"),
        ("power_w = { value = 5, as_of = 5 }", "is not a date"),
        ('power_w = { value = 5, source = "mnie" }', "no source 'mnie'; did you mean 'mine'?"),
        (
            'power_w = { value = 5, confidence = "sure" }',
            "one of exact, high, medium, low, claim",
        ),
        ('power_w = { value = 5, disputed_by = ["C99"] }', "no contradiction 'C99'"),
        ('power_w = { value = 5, disputed_by = "C01" }', "write a list of ids"),
        ("power_w = { value = 5, note = 3 }", "note 3: write a string"),
        ("power_w = inf", "power_w"),
        ("power_w = nan", "power_w"),
        ("aliases = 3", "aliases a list of strings"),
    ],
)
def test_faults_of_a_row(tmp_path: Path, line: str, told: str) -> None:
    message = fault(tmp_path, ROW + line)
    assert told in message
    assert "hardware 'mine'" in message


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (SOURCE, "has no source"),
        ('[defaults]\nsource = "mine"\nconfidence = "high"\n' + SOURCE, "has no as_of"),
        (
            '[defaults]\nsource = "mine"\nas_of = 2026-03-01\n' + SOURCE,
            "confidence None: write one",
        ),
    ],
)
def test_what_every_fact_needs(tmp_path: Path, head: str, told: str) -> None:
    assert told in fault(tmp_path, ROW + "power_w = 5", head=head)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[hardwear]]\nid = 'x'", "unknown table 'hardwear'; did you mean 'hardware'?"),
        ("[hardware]\nid = 'x'", "write each as a [[hardware]] table"),
        ("[[hardware]]\nname = 'x'", "has no id"),
        ("[[hardware]]\nid = 'X Y'\nname = 'x'", "use small letters and digits"),
        ("[[hardware]]\nid = 'new-one'\npower_w = 1", "has no name"),
        ("[[hardware]]\nid = 'a'\nname = 'a'\n[[hardware]]\nid = 'a'\nname = 'b'", "id is taken"),
        ("[[hardware", "not valid TOML"),
        ("[[source]]\nid = 'x'\ntitel = 'y'", "did you mean 'title'?"),
        ("[[source]]\nid = 'x'\ntitle = 'y'\ndate = 'soon'", "source 'x'"),
        ("[[source]]\nid = 'mine'\ntitle = 'y'\ndate = 2026-01-01", None),
    ],
)
def test_faults_of_a_file(tmp_path: Path, text: str, told: str | None) -> None:
    if told is None:
        with pytest.raises(CatalogError, match="source 'mine' is there twice"):
            catalog(tmp_path, text).sources  # noqa: B018
    else:
        assert told in fault(tmp_path, text)


def test_unknown_defaults(tmp_path: Path) -> None:
    assert "did you mean 'source'?" in fault(tmp_path, "", head="[defaults]\nsuorce = 'mine'\n")


def test_two_rows_do_not_share_a_name(tmp_path: Path) -> None:
    known = catalog(tmp_path, ROW + 'aliases = ["H100"]')
    with pytest.raises(CatalogError, match="'mine' and 'h100-sxm' both answer to 'h100'"):
        known.table("hardware")


def test_a_price_needs_its_three(tmp_path: Path) -> None:
    text = '\n[[price]]\nid = "p"\nname = "P"\nprovider = "x"\nmodel = "y"\n'
    assert "has no effective_from" in fault(tmp_path, text, kind="price")


def test_no_folder(tmp_path: Path) -> None:
    known = Catalog.load([tmp_path / "absent"])
    with pytest.raises(CatalogError, match="there is no such folder"):
        known.table("model")


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CatalogError, match="not UTF-8 at byte 0"):
        Catalog.load([tmp_path]).table("model")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.dictionaries(st.text(max_size=12), _VALUES, max_size=5))
def test_whatever_a_row_says_is_a_row_or_a_fault(kind: str, table: dict[str, object]) -> None:
    from headrace.catalog.building import build_row
    from headrace.catalog.files import Written
    from headrace.catalog.schema import fields_of

    for name in fields_of(kind):
        for said in list(table.values())[:1]:
            written = Written(kind, "x", {"name": "X", **table, name: said}, {}, "f")
            try:
                row = build_row([written], {"s"}, set())
            except CatalogError as error:
                assert str(error).startswith("f: ")
            else:
                assert row.id == "x"


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200))
def test_whatever_a_file_holds_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.toml"
    path.write_bytes(content)
    try:
        read_catalog_file(path, "any.toml")
    except CatalogError as error:
        assert str(error).startswith("any.toml: ")
