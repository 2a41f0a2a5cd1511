"""Fixtures of tests of the protocols."""

from __future__ import annotations

from tests.protocol.neutral.cassettes import recordings

__all__ = ["recordings"]
