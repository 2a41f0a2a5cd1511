"""SLOs as people write them: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.slo import Slo, parse_slo
from headrace.errors import ConfigError
from tests.bench.streams import unhurried


def parts(text: str) -> list[tuple[object, ...]]:
    return [
        (one.metric, one.over, one.quantile, one.limit, one.strict)
        for one in parse_slo(text).conditions
    ]


def test_vllms_goodput() -> None:
    assert parts("ttft:500 tpot:50 e2el:3000") == [
        ("ttft", "each", None, 500, False),
        ("tpot", "each", None, 50, False),
        ("e2e", "each", None, 3000, False),
    ]
    assert parse_slo(["ttft:500", "tpot:50"]) == parse_slo("ttft:500 tpot:50")


def test_aiperfs_names() -> None:
    text = (
        "time_to_first_token:100 inter_token_latency:10 request_latency:900 "
        "output_token_throughput_per_user:40"
    )
    assert [one.metric for one in parse_slo(text).conditions] == [
        "ttft",
        "tpot",
        "e2e",
        "tps_user",
    ]


def test_conditions_of_the_whole_run() -> None:
    assert parts("ttft:p95<300ms;itl:p99.9<=0.05s,tpot:mean<50 e2e_latency:median<2s") == [
        ("ttft", "quantile", 0.95, 300, True),
        ("itl_chunk", "quantile", pytest.approx(0.999), 50, False),
        ("tpot", "mean", None, 50, True),
        ("e2e", "quantile", 0.5, 2000, True),
    ]
    mixed = parse_slo("ttft:500;itl_token:max<1s")
    assert [one.text for one in mixed.of_each] == ["ttft:500"]
    assert [one.text for one in mixed.of_all] == ["itl_token:max<1s"]
    assert mixed.text == "ttft:500 itl_token:max<1s"


def test_limits_and_which_side_of_them_is_good() -> None:
    (at_most,), (below,) = parse_slo("ttft:500").conditions, parse_slo("ttft:<500us").conditions
    assert at_most.holds(500) and at_most.holds(1) and not at_most.holds(500.1)
    assert below.limit == 0.5 and not below.holds(0.5)
    (at_least,) = parse_slo("tps_user:20tokens/s").conditions
    assert at_least.holds(20) and at_least.holds(21) and not at_least.holds(19)
    (above,) = parse_slo("tps_user:p5>20").conditions
    assert not above.holds(20) and above.holds(20.5) and above.quantile == 0.05


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "SLO is empty; write ttft:500"),
        (" ; ", "SLO is empty"),
        ("ttft", "'ttft' is not name:limit; write ttft:500 for each request, or ttft:p95<300ms"),
        ("ttft=500", "'ttft=500' is not name:limit"),
        ("ttft: 500", "'ttft:' is not name:limit"),
        ("latency:5", "metric 'latency' is not known; use one of: ttfb, ttft"),
        ("ttft:-5", "'ttft:-5' is not name:limit"),
        ("ttft:0", "limit '0' must be a number above 0"),
        ("ttft:1.2.3", "limit '1.2.3' must be a number above 0"),
        ("ttft:1e999", "limit '1e999' must be a number above 0"),
        ("ttft:5m", "unit 'm' is not one of ms, s, us"),
        ("tps_user:20ms", "unit 'ms' of a rate is not known; write tokens/s, or no unit"),
        ("ttft:p95:300", "'ttft:p95:300' is not name:limit"),
        ("ttft:mean300", "'ttft:mean300' is not name:limit"),
        ("ttft:p101<300", "statistic 'p101' is not one of mean, median, min, max and p0 to p100"),
        ("ttft:worst<300", "statistic 'worst' is not one of mean"),
        ("ttft:p9.9.9<300", "statistic 'p9.9.9' is not one of mean"),
        ("ttft:p95>300", "less ttft is better; write < for its limit"),
        ("tps_user:mean<20", "more tps_user is better; write > for its limit"),
        ("itl:50", "a request has many gaps between chunks; write tpot:… for their mean"),
    ],
)
def test_what_is_wrong_and_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_slo(text)
    assert says in str(raised.value)


@unhurried
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ttft", "tpot", "e2e", "stall", "ttfot", "ttfb"]),
            st.sampled_from(["", "<=", "p95<", "p99.9<=", "mean<", "max<="]),
            st.floats(0.001, 1e6),
            st.sampled_from(["", "ms", "s", "us"]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([" ", ";", ", ", "\n"]),
)
def test_what_is_written_is_read(parts: list[tuple[str, str, float, str]], apart: str) -> None:
    slo = parse_slo(apart.join(f"{n}:{how}{limit!r}{unit}" for n, how, limit, unit in parts))
    factor = {"": 1, "ms": 1, "s": 1000, "us": 0.001}
    for one, (name, how, limit, unit) in zip(slo.conditions, parts, strict=True):
        assert (one.metric, one.strict) == (name, how.endswith("<"))
        assert one.limit == pytest.approx(limit * factor[unit])
    assert parse_slo(slo.text) == slo
    assert msgspec.json.decode(msgspec.json.encode(slo), type=Slo) == slo


@unhurried
@given(st.text(max_size=20))
def test_no_text_brings_the_parser_down(text: str) -> None:
    try:
        assert parse_slo(text).conditions
    except ConfigError as error:
        assert "SLO" in str(error)
