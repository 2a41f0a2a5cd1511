"""Ids of requests that brought none."""

from __future__ import annotations

import os


def random_id() -> str:
    """32 hexadecimal digits nobody can guess."""
    return os.urandom(16).hex()
