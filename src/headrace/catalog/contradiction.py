"""Where sources disagree: what each says, what is used here, and why.

Facts name the contradictions they are part of (`disputed_by`); which rows carry one is therefore
read from the rows and not written down a second time.
"""

from __future__ import annotations

import msgspec


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one source says, in our words. source: id of a Source."""

    source: str
    says: str


class Contradiction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One disagreement, of sources with each other, with themselves, or with arithmetic.

    used: the figure or rule that this project goes by. why: what decided it. carried_by: tests,
    commands or pages that carry it beside the facts that name it.
    """

    id: str
    subject: str
    statements: tuple[Statement, ...]
    used: str
    why: str
    carried_by: tuple[str, ...] = ()
