"""Rules by which `headrace plan recommend` rules options out, or marks them."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Figure, Row

Strength = Literal["hard", "soft"]
Subject = Literal["model", "quantization", "runtime", "hardware", "provider", "plan"]


class Rule(Row, frozen=True, kw_only=True):
    """A rule of `plan recommend`; the program that applies it finds it by its id."""

    strength: Strength
    """A hard rule excludes an option, a soft one marks it and ranks it lower."""
    of: Subject
    """What it looks at."""
    says: str
    """What has to hold."""
    remedy: str
    """What to do where it does not."""
    limits: dict[str, Figure] = msgspec.field(default_factory=dict)
    """Figures it goes by, by name."""
    values: tuple[str, ...] = ()
    """Words it goes by."""
