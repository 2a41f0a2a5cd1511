"""Fixtures of tests of the gateway."""

from __future__ import annotations

from tests.protocol.neutral.cassettes import recordings

__all__ = ["recordings"]
