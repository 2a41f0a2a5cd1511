"""Ids of requests that brought none."""

from __future__ import annotations

import os

_ID_BYTES = 16
# Asking the system takes as long for a page as for one id, which is a hundredth of a request.
_DRAWN_BYTES = 256 * _ID_BYTES


def random_id() -> str:
    """32 hexadecimal digits nobody can guess."""
    return os.urandom(_ID_BYTES).hex()


class RandomIds:
    """A source of many ids like `random_id`'s. It must not be carried into a forked process."""

    def __init__(self) -> None:
        self._digits = ""
        self._at = 0

    def __call__(self) -> str:
        """The next."""
        if self._at >= len(self._digits):
            self._digits, self._at = os.urandom(_DRAWN_BYTES).hex(), 0
        at = self._at
        self._at = at + 2 * _ID_BYTES
        return self._digits[at : self._at]
