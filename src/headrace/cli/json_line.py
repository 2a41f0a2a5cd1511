"""What `--json` prints: one JSON object to a line of stdout."""

from __future__ import annotations

from typing import Any

import click


def print_json(found: Any) -> None:
    """A struct or a mapping as one line."""
    import msgspec

    click.echo(msgspec.json.encode(found))
