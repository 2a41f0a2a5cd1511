"""Words that several files of this dialect share."""

from __future__ import annotations

DIALECT = "mistral"

# Whose signatures this dialect gives back.
SIGNER = "mistral"
