"""Values in JSON text, found where they stand and replaced without touching anything else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.json_spans import Path, replaced, spans

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def paths(value: Any, at: Path = ()) -> list[tuple[Path, Any]]:
    found = [(at, value)]
    if isinstance(value, dict):
        for name, inner in value.items():
            found += paths(inner, (*at, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found += paths(inner, (*at, number))
    return found


@given(VALUES, st.sampled_from((None, 1)), st.booleans())
def test_every_value_is_found_where_it_stands(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    every = paths(json.loads(text))
    found = spans(text, {path for path, _ in every})
    assert {path: json.loads(text[slice(*span)]) for path, span in found.items()} == dict(every)


@given(VALUES, st.data())
def test_a_value_is_replaced_and_nothing_else(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value).encode()
    path, _ = data.draw(st.sampled_from(paths(value)))
    (span,) = spans(text, {path}).values()
    out = replaced(text, {path: b'"new"'})
    assert out == text[: span.start] + b'"new"' + text[span.end :]
    json.loads(out)


def test_what_is_not_there_changes_nothing() -> None:
    text = b' {"a" : [1, {"b":"\\"}]"}] } '
    assert replaced(text, {("a", 2): b"9", ("c",): b"9", ("a", 1, "c"): b"9"}) == text
    assert replaced(text, {("a", 1, "b"): b"7", ("a", 0): b"8"}) == b' {"a" : [8, {"b":7}] } '
