"""Problems with a file of the ledger."""

from __future__ import annotations

from headrace.errors import HeadraceError


class LedgerError(HeadraceError):
    """The file is missing, damaged, newer or of another program, or it cannot be read now."""
