"""When a provider wants to be asked again, from the headers of its refusal."""

from __future__ import annotations

import pytest

from headrace.protocol.dialects.status_failure import retry_after_s

DATE = "Sun, 22 Nov 2026 15:00:00 GMT"
LATER = "Sun, 22 Nov 2026 15:01:30 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "2", "retry-after-ms": "150"}, 0.15),
        ({"retry-after": LATER, "date": DATE}, 90.0),
        ({"retry-after": DATE, "date": LATER}, 0.0),
        ({"retry-after": LATER}, None),
        ({"retry-after": LATER, "date": "now"}, None),
        ({"retry-after": "Sun, 22 Nov 2026 15:01:30 -0000", "date": DATE}, None),
        ({"retry-after": "soon", "date": DATE}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds
