"""Problems with the store of the request log."""

from __future__ import annotations

from headrace.errors import HeadraceError


class RequestLogError(HeadraceError):
    """A log that is missing, damaged, newer, of another program or cannot be reached now."""
