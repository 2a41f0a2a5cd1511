"""The field tables of docs/api.md, made from what the code accepts.

`python -m tests.protocol.api_tables` writes them anew, between their marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from headrace.engine.params import MAX_INT, RANGES
from headrace.protocol.openai.fields import (
    ENDPOINTS,
    MESSAGE_KNOWN,
    STREAM_OPTIONS_KNOWN,
)
from headrace.protocol.request import Known

API = Path(__file__).resolve().parents[2] / "docs" / "api.md"
_SHORT = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
    "/apply-template": "apply-template",
}


def tables() -> dict[str, list[str]]:
    """Lines of each table by its mark."""
    return {"honoured": list(_honoured()), "known": list(_known())}


def _honoured() -> Iterator[str]:
    yield "| Field | Of | Type | Meaning |"
    yield "|---|---|---|---|"
    rows: dict[tuple[str, str, str], list[str]] = {}
    for endpoint in ENDPOINTS:
        info = inspect.type_info(endpoint.struct)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            assert isinstance(field.type, inspect.Metadata)
            meaning = (field.type.extra_json_schema or {})["description"]
            key = (field.name, type_name(field.type.type) + _range(field.name), meaning)
            rows.setdefault(key, []).append(_SHORT[endpoint.path])
    for (name, kind, meaning), where in rows.items():
        yield f"| `{name}` | {', '.join(where)} | {kind} | {meaning} |"


def _range(name: str) -> str:
    """The engine's range of a sampling number; of others the struct itself has the limits."""
    if name not in RANGES or name == "max_tokens":
        return ""
    low, high = RANGES[name]
    if high < MAX_INT:
        return f" {low:g} to {high:g}"
    return f" from {low:g}" if low >= -1 else " of 64 bits"


def _known() -> Iterator[str]:
    yield "| Field | Of | Accepted | Because | For another use |"
    yield "|---|---|---|---|---|"
    rows: dict[Known, list[str]] = {}
    for endpoint in ENDPOINTS:
        for row in endpoint.known.values():
            rows.setdefault(_hashable(row), []).append(_SHORT[endpoint.path])
    for name, table in (("messages[].", MESSAGE_KNOWN), ("stream_options.", STREAM_OPTIONS_KNOWN)):
        for row in table.values():
            rows[_hashable(row, name)] = ["all that have it"]
    for row, where in sorted(rows.items(), key=lambda item: item[0].name):
        columns = (f"`{row.name}`", ", ".join(where), _accepted(row), row.why, row.instead)
        yield f"| {' | '.join(columns)} |"


def _accepted(row: Known) -> str:
    accepts, hints = (_listed(values) for values in (row.accepts, row.hints))
    found = [accepts] if accepts else []
    if hints:
        found.append(f"as a hint {hints}")
    return "; ".join(found) or "nothing"


def _listed(values: tuple[object, ...] | type) -> str:
    if isinstance(values, type):
        return Known("", values, "").accepted
    return " or ".join(f"`{msgspec.json.encode(value).decode()}`" for value in values)


class _HashedKnown(Known):
    """A row that is found by what it says."""

    def __hash__(self) -> int:
        return hash((self.name, self.accepted, self.why, self.instead))

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)


def _hashable(row: Known, prefix: str = "") -> Known:
    return _HashedKnown(prefix + row.name, row.accepts, row.why, row.instead, row.hints)


def type_name(kind: Any) -> str:
    """A type and its limits in words."""
    if isinstance(kind, inspect.Metadata):
        return type_name(kind.type)
    if isinstance(kind, inspect.UnionType):
        names = [type_name(one) for one in kind.types if not isinstance(one, inspect.NoneType)]
        return " or ".join(names)
    if isinstance(kind, inspect.ListType):
        return f"list of {type_name(kind.item_type)}" + _limits(kind)
    names = {
        inspect.IntType: "integer",
        inspect.FloatType: "number",
        inspect.StrType: "string",
        inspect.BoolType: "boolean",
        inspect.DictType: "object",
        inspect.StructType: "object",
        inspect.AnyType: "any",
    }
    return names[type(kind)] + _limits(kind)


def _limits(kind: Any) -> str:
    low, high = (getattr(kind, name, None) for name in ("ge", "le"))
    if high is not None and high >= 2**63 - 1:
        return " of 64 bits"
    if low is not None:
        return f" {low:g} to {high:g}" if high is not None else f" from {low:g}"
    length = getattr(kind, "max_length", None)
    if length is None:
        return ""
    return f" (at most {length}{' characters' if isinstance(kind, inspect.StrType) else ''})"


def with_tables(text: str) -> str:
    """`text` with what lies between each pair of marks replaced."""
    for mark, lines in tables().items():
        pattern = rf"(<!-- {mark} fields -->\n).*?(<!-- end -->)"
        body = "\n".join(lines) + "\n"
        text, count = re.subn(
            pattern, lambda match, body=body: match[1] + body + match[2], text, flags=re.S
        )
        assert count == 1, f"docs/api.md has no place for the {mark} fields"
    return text


if __name__ == "__main__":
    API.write_text(with_tables(API.read_text(encoding="utf-8")), encoding="utf-8")
