"""Refusals of the admin API."""

from __future__ import annotations

from headrace.errors import HeadraceError


class AdminError(HeadraceError):
    """A refusal or failure of an admin request. status: of HTTP. code: for programs. retry_after_s:
    when to try again."""

    def __init__(
        self, status: int, message: str, code: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s
