"""The ledger's file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger: what every request took, in one SQLite file. Without a path no ledger is kept."""

    path: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="The file, relative to this one's folder; created if it does not exist. "
            "Read "
            "only at start."
        ),
    ] = None
    retention_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Older requests are deleted; null keeps all."),
    ] = 90
