"""Where sources disagree: what each says, what is used here, and why.

Facts name the contradictions they are part of (`disputed_by`); which rows carry one is therefore
read from the rows and not written down a second time.
"""

from __future__ import annotations

import msgspec


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement of a source, in our words."""

    source: str
    """Id of a Source."""
    says: str


class Contradiction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disagreement of sources with each other, with themselves, or with arithmetic."""

    id: str
    subject: str
    statements: tuple[Statement, ...]
    used: str
    """The figure or rule that this project goes by."""
    why: str
    """What decided it."""
    carried_by: tuple[str, ...] = ()
    """Tests, commands or pages that carry it beside the facts that name it."""
