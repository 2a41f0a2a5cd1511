"""Requests checked against AWS's own description of the Bedrock Runtime API, where it is there."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[5] / "shared/assets/api-specs/bedrock/bedrock-runtime-service-2.json"


@cache
def _shapes() -> dict[str, Any]:
    if not FILE.exists():
        pytest.skip("needs api-specs/bedrock of the shared test assets")
    shapes: dict[str, Any] = json.loads(FILE.read_text())["shapes"]
    return shapes


def faults(shape: str, value: Any, at: str = "$") -> list[str]:
    """What of `value` the description does not allow; members of the address are not looked for."""
    form = _shapes()[shape]
    if form.get("document"):
        return []
    check = _CHECKS[form["type"]]
    return [f"{at}: {fault}" if fault[:1] != "$" else fault for fault in check(form, value, at)]


def _structure(form: dict[str, Any], value: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return ["no object"]
    members = form["members"]
    found = [f"unknown member {name}" for name in value if name not in members]
    found += [
        f"{name} is missing"
        for name in form.get("required", ())
        if name not in value and "location" not in members[name]
    ]
    if form.get("union") and len(value) != 1:
        found.append(f"a union of {len(value)} members")
    for name in value.keys() & members.keys():
        found += faults(members[name]["shape"], value[name], f"{at}.{name}")
    return found


def _list(form: dict[str, Any], value: Any, at: str) -> list[str]:
    if not isinstance(value, list):
        return ["no list"]
    found = _bounds(form, len(value))
    for number, one in enumerate(value):
        found += faults(form["member"]["shape"], one, f"{at}[{number}]")
    return found


def _map(form: dict[str, Any], value: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return ["no map"]
    found = _bounds(form, len(value))
    for name, one in value.items():
        found += faults(form["key"]["shape"], name, f"{at}<{name}>")
        found += faults(form["value"]["shape"], one, f"{at}.{name}")
    return found


def _string(form: dict[str, Any], value: Any, _at: str) -> list[str]:
    if not isinstance(value, str):
        return ["no string"]
    found = _bounds(form, len(value))
    if "enum" in form and value not in form["enum"]:
        found.append(f"{value!r} is none of {form['enum']}")
    if "pattern" in form and not re.fullmatch(form["pattern"], value):
        found.append(f"{value!r} does not match {form['pattern']}")
    return found


def _number(form: dict[str, Any], value: Any, _at: str) -> list[str]:
    kinds = int if form["type"] in ("integer", "long") else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        return [f"{value!r} is no {form['type']}"]
    return _bounds(form, value)


def _blob(form: dict[str, Any], value: Any, _at: str) -> list[str]:
    try:
        return _bounds(form, len(base64.b64decode(value, validate=True)))
    except (TypeError, ValueError):
        return ["no base64"]


def _boolean(_form: dict[str, Any], value: Any, _at: str) -> list[str]:
    return [] if isinstance(value, bool) else ["no boolean"]


def _bounds(form: dict[str, Any], size: float) -> list[str]:
    low, high = form.get("min"), form.get("max")
    if (low is not None and size < low) or (high is not None and size > high):
        return [f"{size} is not between {low} and {high}"]
    return []


_CHECKS = {
    "structure": _structure,
    "list": _list,
    "map": _map,
    "string": _string,
    "integer": _number,
    "long": _number,
    "float": _number,
    "double": _number,
    "blob": _blob,
    "boolean": _boolean,
}
