"""One stream under five definitions: figures worked out by hand, and identities for any stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.definitions import DEFINITIONS, Definition, Measures, definition, table
from headrace.bench.definitions.tokens import streamed_tokens
from headrace.bench.record import Failure, RequestRecord, Usage
from headrace.errors import ConfigError
from tests.bench.streams import MS, records, spread_ms, steady, stream, unhurried

TOOLS = list(DEFINITIONS.values())

# Sent at 20 ms though wanted at 0. A role at once, two tokens of reasoning, one of text, three in
# one chunk, an empty event that says why it ended, usage, and the end.
MIXED = stream(
    (30, "role", ""),
    (120, "reasoning", "h"),
    (140, "reasoning", "m"),
    (200, "text", "a"),
    (260, "text", "bcd"),
    (265, "other", ""),
    (270, "usage", ""),
    intended_ms=0,
    sent_ms=20,
    end_ms=272,
    headers_ns=24 * MS,
    tokens=6,
    counted=5,
)


def measures(tool: str, record: RequestRecord, clock: str = "sent") -> Measures:
    got = definition(tool).measure(record, "intended" if clock == "intended" else "sent")
    assert got is not None
    return got


def times_ms(tool: str, record: RequestRecord, clock: str = "sent") -> dict[str, float]:
    return {n: round(v / MS, 4) for n, v in measures(tool, record, clock).times_ns.items()}


def test_headrace_counts_what_a_reader_sees() -> None:
    assert times_ms("headrace", MIXED) == {
        "ttfb": 4,
        "ttft": 100,
        "ttfot": 180,
        "tpot": 28,  # (260 − 120) / 5
        "tpot_incl": 40,  # 240 / 6
        "stall": 60,
        "e2e": 240,
    }
    got = measures("headrace", MIXED)
    assert spread_ms(got.gaps_ns["itl_chunk"]) == [20, 60, 60]
    assert spread_ms(got.gaps_ns["itl_token"]) == [20, 60, 20, 20, 20]
    assert got.rates["tps_user"] == pytest.approx(1000 / 28)
    assert (got.output_tokens, got.prompt_tokens) == (6, None)


def test_from_the_intended_time_only_the_beginning_moves() -> None:
    sent, intended = times_ms("headrace", MIXED), times_ms("headrace", MIXED, "intended")
    assert {name: intended[name] - sent[name] for name in sent} == {
        "ttfb": 20,
        "ttft": 20,
        "ttfot": 20,
        "tpot": 0,
        "tpot_incl": pytest.approx(20 / 6, abs=1e-3),
        "stall": 0,
        "e2e": 20,
    }


def test_vllm_counts_content_of_a_chat_and_every_event_of_a_completion() -> None:
    assert times_ms("vllm", MIXED) == {"ttft": 100, "e2el": 240, "tpot": 28}  # 140 / 5
    assert spread_ms(measures("vllm", MIXED).gaps_ns["itl"]) == [20, 60, 60]
    plain = stream((50, "text", "a"), (80, "text", "b"), (85, "other", ""), tokens=2)
    got = definition("vllm").of_api("openai-completions").measure(plain, "sent")
    assert got is not None
    assert spread_ms(tuple(got.times_ns[name] for name in ("ttft", "e2el", "tpot"))) == [50, 85, 35]
    assert spread_ms(got.gaps_ns["itl"]) == [30, 5]


@pytest.mark.parametrize("kind", ["openai-chat", "ollama", None])
def test_a_chat_is_one_by_its_api_and_not_by_a_role(kind: str | None) -> None:
    """Ollama's and some gateways' chats begin with content."""
    bare = stream((50, "text", "a"), (80, "text", "b"), (85, "other", ""), tokens=2)
    got = definition("vllm").of_api(kind).measure(bare, "sent")
    assert got is not None and got.times_ns["e2el"] == 80 * MS
    assert all(tool.of_api("openai-completions").name == tool.name for tool in TOOLS)


def test_before_0_33_vllm_counted_the_role() -> None:
    """The best-known disagreement: 5 ms of one tool are 214 ms of another."""
    record = stream(
        (5, "role", ""), (214, "text", "a"), (234, "text", "b"), (236, "other", ""), tokens=2
    )
    assert times_ms("vllm", record) == {"ttft": 214, "e2el": 234, "tpot": 20}
    assert times_ms("vllm-0.32", record) == {"ttft": 5, "e2el": 236, "tpot": 231}
    assert spread_ms(measures("vllm-0.32", record).gaps_ns["itl"]) == [209, 20, 2]


def test_aiperf_counts_tokens_itself() -> None:
    assert times_ms("aiperf", MIXED) == {
        "time_to_first_token": 100,
        "time_to_first_output_token": 180,
        "time_to_second_token": 20,
        "inter_token_latency": 35,  # (240 − 100) / (5 − 1)
        "request_latency": 240,
    }
    got = measures("aiperf", MIXED)
    assert spread_ms(got.gaps_ns["inter_chunk_latency"]) == [20, 60, 60]
    assert got.rates["output_token_throughput_per_user"] == pytest.approx(1000 / 35)
    assert got.output_tokens == 5


def test_guidellm_counts_the_first_wait_as_time_per_output_token() -> None:
    assert times_ms("guidellm", MIXED) == {
        "time_to_first_token": 100,
        "time_to_first_output_token": 180,
        "inter_token_latency": 28,
        "time_per_output_token": 40,  # 240 / 6
        "request_latency": 252,  # to the end of the response
    }
    got = measures("guidellm", MIXED)
    assert got.weights == {"inter_token_latency": 5, "time_per_output_token": 6}
    assert got.rates["output_tokens_per_second"] == pytest.approx(6 / 0.252)


def test_llmperf_sees_neither_reasoning_nor_tokens_in_chunks() -> None:
    assert times_ms("llmperf", MIXED) == {
        "ttft_s": 180,
        "inter_token_latency_s": 40,  # 240 over the six events before usage
        "end_to_end_latency_s": 252,
    }
    got = measures("llmperf", MIXED)
    assert got.rates["request_output_throughput_token_per_s"] == pytest.approx(5 / 0.252)


def test_of_one_token_nobody_has_a_time_between_tokens() -> None:
    one = steady(1, 80, 0, counted=1)
    assert times_ms("headrace", one) == {"e2e": 80, "tpot_incl": 80, "ttft": 80, "ttfot": 80}
    assert times_ms("vllm", one) == {"ttft": 80, "e2el": 80}
    assert "inter_token_latency" not in times_ms("aiperf", one)
    assert times_ms("guidellm", one)["time_per_output_token"] == 80
    assert "inter_token_latency" not in times_ms("guidellm", one)
    assert times_ms("llmperf", one)["inter_token_latency_s"] == 80
    met = {tool.name for tool in TOOLS if tool.without_tpot == "met"}
    assert met == {"headrace", "vllm", "vllm-0.32"}


def test_all_tokens_in_one_chunk_have_no_pace_but_for_tools_that_make_one_up() -> None:
    burst = stream((90, "text", "a b c d"), tokens=4)
    assert "tpot" not in times_ms("headrace", burst)
    assert not measures("headrace", burst).rates
    assert times_ms("vllm", burst)["tpot"] == 0
    assert times_ms("aiperf", burst)["inter_token_latency"] == 0
    assert not measures("aiperf", burst).rates, "one over nothing is no rate"


def test_five_tokens_in_a_chunk_are_one_gap_or_five() -> None:
    packed = stream((100, "text", "aaaaa"), (150, "text", "bbbbb"), tokens=10)
    got = measures("headrace", packed)
    assert spread_ms(got.gaps_ns["itl_chunk"]) == [50]
    assert spread_ms(got.gaps_ns["itl_token"]) == [10] * 5
    assert spread_ms(measures("vllm", packed).gaps_ns["itl"]) == [50]


def test_a_response_without_a_stream_has_only_its_whole_time() -> None:
    whole = stream((300, "text", "all of it"), tokens=3, streamed=False)
    assert times_ms("headrace", whole) == {"e2e": 300, "tpot_incl": 100}
    assert times_ms("aiperf", whole) == {"request_latency": 300}
    assert times_ms("guidellm", whole) == {"request_latency": 300, "time_per_output_token": 100}


def test_a_response_without_content_has_no_first_token() -> None:
    empty = stream((10, "role", ""), (40, "usage", ""), end_ms=41)
    assert times_ms("headrace", empty) == {"e2e": 41}
    assert times_ms("llmperf", empty)["ttft_s"] == 0
    nothing = stream(end_ms=41)
    for failed in (empty, nothing):
        assert definition("vllm").measure(failed, "sent") is None, "which vllm calls failed"
    bare = stream((10, "other", ""), (40, "usage", ""), end_ms=41)
    assert times_ms("vllm-0.32", bare)["ttft"] == 10, "where choices are enough"
    assert definition("vllm").measure(bare, "sent") is None
    assert times_ms("aiperf", nothing) == {"request_latency": 41}


def test_tools_count_tokens_by_server_or_client() -> None:
    told = stream((9, "text", "a"), tokens=8, counted=5)
    counts = {tool.name: measures(tool.name, told).output_tokens for tool in TOOLS}
    assert counts.pop("vllm-0.32") == counts["vllm"]
    assert counts == {"headrace": 8, "vllm": 8, "aiperf": 5, "guidellm": 8, "llmperf": 5}
    untold = stream((9, "text", "a"), (10, "text", "b"))
    counts = {tool.name: measures(tool.name, untold).output_tokens for tool in TOOLS}
    assert counts.pop("vllm-0.32") == counts["vllm"]
    assert counts == {"headrace": None, "vllm": 1, "aiperf": None, "guidellm": 2, "llmperf": None}


def test_other_tools_start_before_they_connect() -> None:
    connected = steady(2, 50, 10, start_ms=30, begun_ns=18 * MS, new_connection=True)
    assert times_ms("headrace", connected)["ttft"] == 50
    for tool, name in {
        "vllm": "ttft",
        "aiperf": "time_to_first_token",
        "guidellm": "time_to_first_token",
        "llmperf": "ttft_s",
    }.items():
        assert times_ms(tool, connected)[name] == 62
        assert times_ms(tool, connected, "intended")[name] == 50


def test_hidden_reasoning_does_not_make_tokens_look_fast() -> None:
    usage = Usage(completion_tokens=50, reasoning_tokens=45)
    hidden = stream(*((100 + 20 * at, "text", "a") for at in range(5)), usage=usage)
    assert times_ms("headrace", hidden)["tpot"] == 20
    assert times_ms("vllm", hidden)["tpot"] == pytest.approx(80 / 49, abs=1e-3)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_failed_and_unsent_requests_have_no_measures(tool: Definition) -> None:
    failed = steady(3, 10, 10, failure=Failure("truncated", "gone"))
    unsent = stream(sent_ms=None, failure=Failure("cancelled", "the run ended"))
    for record in (failed, unsent):
        assert tool.measure(record, "sent") is None


@unhurried
@given(records(), st.sampled_from(["sent", "intended"]))
def test_what_comes_first_and_what_each_token_took_make_up_the_whole(
    record: RequestRecord, clock: str
) -> None:
    times = measures("headrace", record, clock).times_ns
    n = streamed_tokens(record)
    if "tpot" in times:
        assert n is not None
        assert round(times["ttft"] + times["tpot"] * (n - 1)) == times["e2e"]
    gaps = measures("headrace", record, clock).gaps_ns.get("itl_chunk", ())
    assert times["ttft"] + sum(gaps) == times["e2e"]
    if "tpot_incl" in times:
        assert round(times["tpot_incl"] * (record.output_tokens or 0)) == times["e2e"]


@unhurried
@given(records())
def test_tools_agree_where_their_words_do(record: RequestRecord) -> None:
    ours, ai = measures("headrace", record), measures("aiperf", record)
    assert ai.times_ns["time_to_first_token"] == ours.times_ns["ttft"]
    assert ai.times_ns["request_latency"] == ours.times_ns["e2e"]
    guide = measures("guidellm", record)
    assert guide.times_ns["time_to_first_token"] == ours.times_ns["ttft"]
    assert guide.times_ns["request_latency"] >= ours.times_ns["e2e"]
    vllm = measures("vllm", record)
    assert vllm.times_ns["ttft"] <= ours.times_ns["ttft"]
    assert vllm.times_ns["ttft"] + sum(vllm.gaps_ns["itl"]) == vllm.times_ns["e2el"]
    if "tpot" in vllm.times_ns:
        whole = vllm.times_ns["ttft"] + vllm.times_ns["tpot"] * ((vllm.output_tokens or 0) - 1)
        assert round(whole) == vllm.times_ns["e2el"]


@unhurried
@given(records())
def test_every_value_has_a_row_in_the_table(record: RequestRecord) -> None:
    for tool in TOOLS:
        got = measures(tool.name, record)
        rows = {metric.name: metric.each for metric in tool.metrics}
        assert all(rows[name] == "request" for name in got.times_ns)
        assert all(rows[name] == "gap" for name in got.gaps_ns)
        assert all(rows[name] == "rate" for name in got.rates)


def test_the_table_sets_tools_below_one_another() -> None:
    rows = table(TOOLS)
    assert len(rows) == sum(len(tool.metrics) for tool in TOOLS)
    first = [(row.definition, row.name) for row in rows if row.canonical == "ttft"]
    assert first == [
        ("headrace", "ttft"),
        ("vllm", "ttft"),
        ("vllm-0.32", "ttft"),
        ("aiperf", "time_to_first_token"),
        ("guidellm", "time_to_first_token"),
        ("llmperf", "ttft_s"),
    ]
    assert [row.canonical for row in rows].index(None) == len(rows) - 3, "own metrics come last"
    assert all(tool.unlike for tool in TOOLS if tool.name != "headrace")
    assert all(tool.source for tool in TOOLS)


def test_an_unknown_tool_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match="'genai' is not known; use one of: headrace, vllm"):
        definition("genai")
