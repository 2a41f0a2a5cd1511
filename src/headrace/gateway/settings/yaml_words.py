"""Words and numbers that YAML misreads where they are names.

YAML 1.1 takes `on` for true, and a version `1` for a number.
"""

from __future__ import annotations

from typing import Any

_FILE = "file:"


def guardrails_named(loaded: Any) -> Any:
    """The guardrails with the field `on` under its name."""
    if not isinstance(loaded, dict):
        return loaded
    return {
        name: {"on" if key is True else key: value for key, value in one.items()}
        if isinstance(one, dict)
        else one
        for name, one in loaded.items()
    }


def prompts_named(loaded: Any) -> Any:
    """The prompts with version names as text, also in labels; a single version in a label has all
    of its weight."""
    if not isinstance(loaded, dict):
        return loaded
    return {name: _prompt(one) for name, one in loaded.items()}


def _prompt(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = dict(value)
    versions, labels = found.get("versions"), found.get("labels")
    if isinstance(versions, dict):
        found["versions"] = {_name(key): _version(one) for key, one in versions.items()}
    if isinstance(labels, dict):
        found["labels"] = {
            label: {_name(key): weight for key, weight in one.items()}
            if isinstance(one, dict)
            else {_name(one): 1}
            for label, one in labels.items()
        }
    return found


def _version(value: Any) -> Any:
    is_file = isinstance(value, str) and value.startswith(_FILE)
    return {"file": value.removeprefix(_FILE)} if is_file else value


def _name(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value
