"""Problems with the store of the request log."""

from __future__ import annotations

from headrace.errors import HeadraceError


class RequestLogError(HeadraceError):
    """It is missing, damaged, newer or of another program, or it cannot be reached now."""
