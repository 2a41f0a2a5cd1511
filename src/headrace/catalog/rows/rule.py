"""Rules by which `headrace plan recommend` rules options out, or marks them."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.catalog.rows.row import Figure, Row

Strength = Literal["hard", "soft"]
Subject = Literal["model", "quantization", "runtime", "hardware", "provider", "plan"]


class Rule(Row, frozen=True, kw_only=True):
    """One rule. The program that applies it finds it by its id.

    strength: hard rules an option out, soft only marks it and ranks it lower. of: what it looks at.
    says: what has to be so. remedy: what to do where it is not. limits: figures it goes by, by
    name. values: words it goes by.
    """

    strength: Strength
    of: Subject
    says: str
    remedy: str
    limits: dict[str, Figure] = msgspec.field(default_factory=dict)
    values: tuple[str, ...] = ()
