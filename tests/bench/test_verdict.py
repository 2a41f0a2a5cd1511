"""The verdict on the client: each sign alone is enough, and what is allowed grows with TTFT."""

from __future__ import annotations

import msgspec
import pytest

from headrace.bench.record import ClientHealth, Collections
from headrace.bench.verdict import client_verdict
from tests.bench.streams import IDLE, MS


def health(
    schedule_ms: float = 1, loop_ms: float = 1, cpu: tuple[float, ...] = (0.3, 0.5)
) -> ClientHealth:
    """Lags of 1 ms but for the slowest two of a hundred."""
    return ClientHealth(
        schedule_lag_ns=(MS,) * 98 + (round(schedule_ms * MS),) * 2,
        loop_lag_ns=(MS,) * 98 + (round(loop_ms * MS),) * 2,
        cpu_share=cpu,
    )


def test_a_client_with_room_to_spare() -> None:
    got = client_verdict(health(), 20 * MS)
    assert got.client_bound is False
    assert got.sentences == (
        "The client was not the limit: schedule lag p99 1.0 ms and event loop lag p99 1.0 ms of "
        "5.0 ms allowed, 50% of a core at most.",
    )


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (health(schedule_ms=5.1), "its requests left late, lag p99 5.1 ms where 5.0 ms is allowed"),
        (health(loop_ms=7), "its event loop was late, lag p99 7.0 ms where 5.0 ms is allowed"),
        (health(cpu=(0.2, 0.95)), "a process of it used 95% of a core where 90% is allowed"),
    ],
)
def test_each_sign_alone_is_enough(of: ClientHealth, says: str) -> None:
    got = client_verdict(of, 50 * MS)
    assert got.client_bound is True
    (sentence,) = got.sentences
    assert (
        says in sentence and sentence.startswith("The client was the limit") and "use" in sentence
    )


@pytest.mark.parametrize(("has_rate", "remedy"), [(True, "a lower rate."), (False, "fewer users.")])
def test_a_lower_rate_is_only_named_where_there_is_one(has_rate: bool, remedy: str) -> None:
    (sentence,) = client_verdict(health(schedule_ms=9), None, has_rate=has_rate).sentences
    assert sentence.endswith(f"; use more --processes or {remedy}")


def test_what_is_allowed_is_a_tenth_of_the_median_ttft() -> None:
    slow = health(schedule_ms=20)
    assert client_verdict(slow, 191 * MS).client_bound is True
    got = client_verdict(slow, 201 * MS)  # a loop that is late by 1 ms has its share of it
    assert got.client_bound is False and got.allowed_lag_ms == 20
    assert client_verdict(slow, None).allowed_lag_ms == 5


def test_a_late_client_does_not_allow_itself_more() -> None:
    late = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(500 * MS,) * 100, cpu_share=(0.5,))
    got = client_verdict(late, 520 * MS)
    assert got.client_bound is True and got.allowed_lag_ms == 5


def test_every_sign_has_its_sentence() -> None:
    assert len(client_verdict(health(9, 9, (1.0,)), None).sentences) == 3


def test_nothing_measured_is_no_clean_bill() -> None:
    got = client_verdict(IDLE, 50 * MS)
    assert got.client_bound is None
    assert got.sentences == ("Whether the client was the limit was not measured.",)
    part = ClientHealth(schedule_lag_ns=(), loop_lag_ns=(), cpu_share=(0.5,))
    assert client_verdict(part, None).sentences == (
        "The client was not the limit: 50% of a core at most.",
    )


def test_a_long_garbage_collection_is_told_and_is_no_sign() -> None:
    of = msgspec.structs.replace(health(), collections=Collections(4, 31 * MS, 12 * MS))
    got = client_verdict(of, 50 * MS)
    assert got.client_bound is False
    assert (got.collections, got.collection_most_ms, got.collections_total_ms) == (4, 12.0, 31.0)
    assert "garbage collection of the client took 12.0 ms where 5.0 ms" in got.sentences[-1]
    short = msgspec.structs.replace(health(), collections=Collections(4, 9 * MS, 3 * MS))
    assert len(client_verdict(short, 50 * MS).sentences) == 1
    assert client_verdict(health(), 50 * MS).collections is None
