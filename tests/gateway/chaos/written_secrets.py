"""A secret in all the forms that it might be written down in, looked for in bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote


def forms(secret: str) -> set[bytes]:
    """As it might be written down."""
    raw = secret.encode()
    return {
        raw, base64.b64encode(raw).rstrip(b"="), quote(secret, safe="").encode(),
        raw.hex().encode(), json.dumps(secret).encode()[1:-1], repr(raw).encode()[2:-1],
    }  # fmt: skip


def found_in(texts: Mapping[str, bytes], secrets: Iterable[str]) -> list[str]:
    """Where secrets stand, with what stands around them."""
    return [
        f"{name} has {secret!r} as {form!r}: ...{data[max(0, at - 200) : at + 60]!r}"
        for name, data in texts.items()
        for secret in secrets
        for form in forms(secret)
        if (at := data.find(form)) >= 0
    ]
