"""What clients say of the cache."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.gateway.cache.wish import Wish, wish_of


@pytest.mark.parametrize(
    ("header", "field", "wish"),
    [
        ("", None, Wish()),
        ("no-cache", None, Wish(reads=False)),
        ("No-Store, no-cache", None, Wish(reads=False, stores=False)),
        ("max-age=60", None, Wish(max_age_s=60)),
        ('private,max-age="5"', None, Wish(max_age_s=5)),
        ("max-age=0", None, Wish(reads=False, max_age_s=0)),
        ("max-age=soon", None, Wish(reads=False, max_age_s=0)),
        ("only-if-lucky", None, Wish()),
        ("", {}, Wish()),
        ("", {"no-cache": True}, Wish(reads=False)),
        ("", {"no-store": True}, Wish(reads=False, stores=False)),
        ("max-age=60", {"s-maxage": 5, "ttl": 9.5}, Wish(max_age_s=5, ttl_s=9.5)),
        ("", {"namespace": "eval"}, Wish(namespace="eval")),
    ],
)
def test_wishes(header: str, field: Any, wish: Wish) -> None:
    assert wish_of({"cache-control": header}, field) == wish


@pytest.mark.parametrize(
    "field", [True, "no-cache", {"no-cache": "yes"}, {"ttl": 0}, {"s-maxage": -1}, {"nocache": 1}]
)
def test_fields_that_are_wrong_are_named(field: Any) -> None:
    with pytest.raises(RequestError, match=r"^cache.*`no-cache`, `no-store`, `ttl`") as raised:
        wish_of({}, field)
    assert (raised.value.param or "").startswith("cache")


def test_a_time_with_its_unit_is_told_in_seconds() -> None:
    with pytest.raises(RequestError, match="ttl: a number is expected; it is in seconds: 300;"):
        wish_of({}, {"ttl": "5m"})
