"""Reports against sums made by hand."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.gateway.ledger.days import Days, days_of
from headrace.gateway.ledger.schema import reading
from headrace.gateway.ledger.usage import GROUPINGS, Usage, groupings_of, usage_by
from headrace.gateway.serving.entry import Entry
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.ledger.entries import DAY_S, NOVEMBER_S, entry, refused, written

_NO_LINES = ("cost_nusd", "is_incomplete")
LINES = tuple(name for name in TokenUsage.__struct_fields__ if name not in _NO_LINES)


def told(folder: Path, entries: Sequence[Entry], *by: str, days: Days | None = None) -> list[Usage]:
    with reading(written(folder / "ledger", *entries)) as connection:
        return usage_by(connection, by, days)


def test_an_empty_ledger_has_used_nothing(tmp_path: Path) -> None:
    (one,) = told(tmp_path, [])
    assert one.requests == one.cost_nusd == one.unknown_cost == 0 and one.total_ms_p50 is None
    assert told(tmp_path / ".", [], "key") == []


def test_each_outcome_is_counted_where_it_belongs(tmp_path: Path) -> None:
    (one,) = told(
        tmp_path,
        [
            entry(1),
            entry(2, outcome="cut", usage_from="estimated"),
            refused(3, outcome="failed"),
            refused(4),
            refused(5, outcome="client_gone"),
            entry(6, cache="hit", cost_nusd=0, usage=TokenUsage(cache_read_tokens=1)),
            entry(7, usage=TokenUsage(input_tokens=1, cache_read_tokens=9)),
        ],
    )
    assert (one.requests, one.answered, one.cut, one.failed, one.refused, one.client_gone) == (
        7, 3, 1, 1, 1, 1,
    )  # fmt: skip
    assert one.failures == 2
    assert (one.estimated, one.cache_hits, one.prompt_cache_hits) == (1, 1, 1)
    assert one.cache_read_tokens == 9, "no provider counted a hit of our own cache"
    assert one.unknown_cost == 1, "what a client left behind, nobody knows; a refusal costs nothing"


def test_a_cost_that_nobody_knows_is_never_zero_in_silence(tmp_path: Path) -> None:
    (one,) = told(tmp_path, [entry(1), entry(2, cost_nusd=None), entry(3, cost_nusd=0)])
    assert (one.cost_nusd, one.unknown_cost) == (18_000, 1)


def test_groups(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        [
            entry(1, key="k1", team="t"),
            entry(2, key="k2", team="t"),
            entry(3, key="k1", team="t", at_s=NOVEMBER_S + 1.5 * DAY_S),
            refused(4),
        ],
        "day",
        "key",
    )
    assert [(one.by, one.requests) for one in found] == [
        ({"day": "2026-11-01", "key": ""}, 1),
        ({"day": "2026-11-01", "key": "k1"}, 1),
        ({"day": "2026-11-01", "key": "k2"}, 1),
        ({"day": "2026-11-02", "key": "k1"}, 1),
    ]


@pytest.mark.parametrize("name", GROUPINGS)
def test_every_grouping_splits_the_whole(name: str, tmp_path: Path) -> None:
    entries = [
        entry(1, team="a", at_s=NOVEMBER_S - 1.0, total_ms=1.0),
        entry(
            2,
            model="b",
            key="c",
            organisation="d",
            user="e",
            total_ms=2.0,
            variant="f",
            prompt="p@1",
        ),
        entry(2, purpose="judge", parent="req-1", total_ms=50.0),
        refused(3, dialect="ollama", operation="embeddings", total_ms=3.0),
    ]
    found = told(tmp_path, entries, name)
    assert len(found) == 2
    assert sum(one.requests for one in found) == 3
    assert sum(one.besides for one in found) == 1
    assert sum(one.cost_nusd for one in found) == 54_000


def test_days_begin_and_end_at_midnight_of_utc(tmp_path: Path) -> None:
    entries = [
        entry(1, at_s=NOVEMBER_S - 0.001),
        entry(2, at_s=float(NOVEMBER_S)),
        entry(3, at_s=NOVEMBER_S + DAY_S - 0.001),
        entry(4, at_s=float(NOVEMBER_S + DAY_S)),
    ]
    path = written(tmp_path / "ledger", *entries)

    def requests(since: str | None, until: str | None) -> int:
        with reading(path) as connection:
            (one,) = usage_by(connection, (), days_of(since, until))
            assert (one.total_ms_p50 is None) == (one.requests == 0)
        return one.requests

    assert requests(None, None) == 4
    assert requests("2026-11-01", "2026-11-01") == 2
    assert requests("2026-11-01", None) == 3
    assert requests(None, "2026-11-01") == 3
    assert requests("2026-11-03", None) == 0


def nearest_rank(values: Sequence[float], rank: int) -> float | None:
    """The smallest that `rank` per cent of the values do not exceed."""
    found = [
        one for one in values if 100 * sum(other <= one for other in values) >= rank * len(values)
    ]
    return min(found, default=None)


USAGES = st.builds(TokenUsage, **{name: st.integers(0, 2**62) for name in LINES})
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["", "k1", "k2"]),
        st.none() | USAGES,
        st.none() | st.integers(0, 2**63 - 1),
        st.none() | st.floats(0, 1e6),
        st.floats(0, 1e6),
        st.integers(0, 10**9),
    ),
    max_size=30,
)


@pytest.mark.long
@settings(deadline=None)
@given(REQUESTS)
def test_sums_are_exact_and_percentiles_are_of_the_nearest_rank(
    requests: list[tuple[str, TokenUsage | None, int | None, float | None, float, int]],
) -> None:
    entries = [
        entry(
            at,
            key=key,
            usage=usage,
            usage_from="none" if usage is None else "provider",
            cost_nusd=cost,
            stream=at % 3 > 0,
            first_token_ms=first_ms,
            total_ms=total_ms,
            overhead_us=overhead_us,
        )
        for at, (key, usage, cost, first_ms, total_ms, overhead_us) in enumerate(requests)
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = told(Path(folder), entries, "key")
    assert [one.by["key"] for one in found] == sorted({one.key for one in entries})
    for one in found:
        own = [each for each in entries if each.key == one.by["key"]]
        assert one.requests == len(own)
        assert one.cost_nusd == sum(each.cost_nusd or 0 for each in own)
        assert one.unknown_cost == sum(
            each.cost_nusd is None and each.usage is not None for each in own
        )
        for name in LINES:
            lines = [getattr(each.usage, name) for each in own if each.usage is not None]
            assert getattr(one, name) == sum(lines)
        firsts = [
            each.first_token_ms for each in own if each.stream and each.first_token_ms is not None
        ]
        assert one.first_token_ms_p50 == nearest_rank(firsts, 50)
        assert one.first_token_ms_p95 == nearest_rank(firsts, 95)
        assert one.first_token_ms_p99 == nearest_rank(firsts, 99)
        totals = [each.total_ms for each in own]
        assert one.total_ms_p50 == nearest_rank(totals, 50)
        assert one.total_ms_p95 == nearest_rank(totals, 95)
        overheads = [each.overhead_us for each in own]
        assert one.overhead_us_p50 == nearest_rank(overheads, 50)
        assert one.overhead_us_p99 == nearest_rank(overheads, 99)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dya", "did you mean 'day'"),
        ("key,key", "twice"),
        ("day; DROP TABLE requests", "cannot group by"),
    ],
)
def test_what_nobody_can_group_by(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        groupings_of(text)
    assert groupings_of(" day, key ,") == ("day", "key")


def test_days_as_people_write_them() -> None:
    assert days_of("2026-11-01", None) == Days(dt.date(2026, 11, 1), None)
    with pytest.raises(ConfigError, match="'yesterday' is not a day; write it as 2026-11-01"):
        days_of("yesterday", None)
    with pytest.raises(ConfigError, match="earlier day first"):
        days_of("2026-11-02", "2026-11-01")
