"""The differences between two readings of the file: names of settings, never their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

# What a running gateway keeps until it is started anew.
_AT_NEXT_START = (
    "listen.host", "listen.port", "listen.allowed_hosts", "listen.workers", "ledger.path",
    "access.store", "access.redis", "admin", "request_log.store", "request_log.path",
    "request_log.url", "request_log.max_waiting", "request_log.max_waiting_bytes",
)  # fmt: skip


def changes(before: msgspec.Struct, after: msgspec.Struct) -> tuple[str, ...]:
    """Paths of settings that were added, removed or changed: "models.chat", "log.level"."""
    return tuple(sorted(_changes(before, after, "")))


def wait_for_start(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths that take effect only at the next start."""
    return tuple(
        path
        for path in paths
        if any(path == name or path.startswith(f"{name}.") for name in _AT_NEXT_START)
    )


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, msgspec.Struct) and type(before) is type(after) and path.count(".") < 1:
        for name in before.__struct_fields__:
            yield from _changes(getattr(before, name), getattr(after, name), _join(path, name))
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield _join(path, name)
    else:
        yield path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
