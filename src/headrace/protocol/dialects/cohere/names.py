"""Words that several files of this dialect share."""

from __future__ import annotations

DIALECT = "cohere"
