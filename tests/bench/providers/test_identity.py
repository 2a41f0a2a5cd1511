"""What differs between two providers files, in words, and that secrets are no part of it."""

from __future__ import annotations

import msgspec

from headrace.bench.providers.identity import (
    FINGERPRINT,
    all_differences,
    differences,
    joined_briefly,
    provider_facts,
    said_facts,
)
from tests.bench.providers.made import priced, provider


def test_every_difference_is_named() -> None:
    before = ({"batch_size": 8}, {"a": provider_facts(provider("a")), "b": {}})
    now = ({"batch_size": 9}, {"a": provider_facts(provider("a", model="n")), "c": {}})
    assert all_differences(before, now) == [
        "batch_size was 8 and is 9",
        "a: model was 'm' and is 'n'",
        "provider 'b' is gone",
        "provider 'c' is new",
    ]
    assert all_differences(before, before) == []


def test_a_fingerprint_is_told_where_it_alone_differs() -> None:
    assert differences({FINGERPRINT: "a", "seed": 1}, {FINGERPRINT: "b", "seed": 2}) == [
        "seed was 1 and is 2"
    ]
    assert differences({FINGERPRINT: "a"}, {FINGERPRINT: "b"}) == [
        f"{FINGERPRINT} was 'a' and is 'b'"
    ]


def test_many_are_told_shortly() -> None:
    told = joined_briefly([f"fact {number}" for number in range(30)])
    assert told.endswith("; and 22 more")


def test_prices_and_notes_are_said_and_not_measured() -> None:
    cheap, dear = priced("a", 1.0, notes="x"), priced("a", 2.0, notes="y", region="eu")
    assert provider_facts(cheap) == provider_facts(dear)
    assert said_facts(cheap) != said_facts(dear)


def test_what_was_not_asked_for_is_no_fact() -> None:
    assert "continuous_usage" not in provider_facts(provider("a"))
    asking = provider("a", continuous_usage=True, return_metrics=True)
    assert provider_facts(asking)["continuous_usage"] and provider_facts(asking)["return_metrics"]


def test_of_headers_and_addresses_only_what_is_no_secret() -> None:
    of = provider(
        "a",
        "https://h/v1?sig=hunter2",
        headers={"X-Title": "hunter3"},
        headers_env={"X-Api-Key": "VARIABLE"},
        api_key_env="KEY_VARIABLE",
    )
    text = msgspec.json.encode(provider_facts(of)).decode()
    assert '"x-api-key"' in text
    assert not any(word in text for word in ("hunter2", "VARIABLE", "hunter3"))
