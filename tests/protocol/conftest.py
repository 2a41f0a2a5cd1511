"""Fixtures of tests of the protocols."""

from __future__ import annotations

from tests.protocol.dialects.api_description import api_descriptions
from tests.protocol.neutral.cassettes import recordings

__all__ = ["api_descriptions", "recordings"]
