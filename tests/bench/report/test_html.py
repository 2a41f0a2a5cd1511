"""The page of a run: whole, safe, small, and without a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.load_point import load_point
from headrace.bench.record import Chunk, Failure, RunRecord
from headrace.bench.report.html import report_page
from headrace.bench.slo import parse_slo
from headrace.bench.summary import summarize
from tests.bench.report.synthetic import S, simulated
from tests.bench.streams import MS, run, steady, stream
from tests.page.alone import assert_stands_alone
from tests.page.test_markup import HOSTILE, Parsed

SLO = parse_slo("ttft:500 tpot:50 itl:p99<300ms")
MADE = simulated(requests=150, rate=26, slots=24)


def page_of(made: RunRecord, definition: str = "headrace", **rest: object) -> str:
    summary = summarize(made, definition=DEFINITIONS[definition], slo=SLO)
    return report_page(made, summary, slo=SLO, **rest)  # type: ignore[arg-type]


PAGE = page_of(MADE)


def titles(page: str) -> list[str]:
    return re.findall("<h3>(.*?)</h3>", page)


class Balanced(HTMLParser):
    """Fails where an element is not closed in its order."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_plot_and_table_is_there() -> None:
    for title in (
        "Time to first token",
        "Time per output token",
        "Gaps between chunks (ITL)",
        "End-to-end latency",
        "Time to first token over time",
        "Time to first token over load",
        "Output tokens",
        "Gaps between chunks (ITL) over time",
        "Timeline of chunks",
        "Timeline, close to the longest stall",
        "KV cache in use",
        "Prefix cache hits",
        "Preemptions since the start",
        "Bandwidth and compute in use",
        "Roofline over time",
        "Latency, by headrace",
        "Rates",
        "Definitions: headrace",
        "Provenance",
    ):
        assert title in titles(PAGE), title
    assert "Requests waited before they could be sent" in PAGE
    assert "9f8e7d6c5b4a3210" in PAGE, "the data set's fingerprint"


def test_the_page_is_well_formed() -> None:
    check = Balanced()
    check.feed(PAGE)
    check.close()
    assert check.open == []
    drawings = re.findall(r"<svg viewBox.*?</svg>", PAGE, flags=re.DOTALL)
    assert len(drawings) >= 15
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing and "inf" not in drawing


def test_the_page_needs_no_network_and_allows_none() -> None:
    assert_stands_alone(PAGE, most_script=4096)


def test_nothing_that_others_wrote_becomes_markup() -> None:
    about = {"model": HOSTILE, HOSTILE: HOSTILE, "endpoint": HOSTILE}
    made = run(
        steady(4, 100, 40, index=0, finish_reason=HOSTILE),
        stream((5, "text", HOSTILE), end_ms=9, failure=Failure("stream", HOSTILE), index=1),
    )
    made = msgspec.structs.replace(made, about=about, server_metrics=((0, HOSTILE), (S, HOSTILE)))
    page = page_of(made, title=HOSTILE)
    parsed = Parsed(page)
    assert sum(name == "script" for name, _ in parsed.tags) == 1
    assert not [key for _, facts in parsed.tags for key in facts if key.startswith("on")]
    assert page.count("<script>") == 1 and HOSTILE in "".join(parsed.words)
    assert "2 readings of the server" in page


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_under_every_definition(name: str) -> None:
    assert f"Definitions: {name}" in titles(page_of(MADE, name))


@pytest.mark.parametrize(
    "made",
    [
        run(),
        run(stream(sent_ms=None, failure=Failure("connect", "refused"))),
        run(steady(1, 100, 0)),
        run(steady(2, 0, 0)),
        run(stream((100, "text", "whole"), streamed=False, tokens=5)),
    ],
)
def test_runs_of_little_have_a_page_too(made: RunRecord) -> None:
    page = page_of(made)
    assert "Rates" in titles(page)
    assert not re.search(r"\bnan\b", page.split("</style>")[1].split("<script>")[0])


def test_a_sweep_has_a_curve_with_knee_and_limit() -> None:
    made = [simulated(seed=2, requests=60, rate=rate, metrics=False) for rate in (2, 8, 20)]
    points = [load_point(f"{at}", summarize(one, slo=SLO)) for at, one in enumerate(made)]
    page = page_of(MADE, sweep=[one for one in points if one is not None])
    assert "TTFT over requests per second" in titles(page) and "knee" in page


@pytest.mark.long
def test_a_run_of_thousands_is_no_large_page() -> None:
    """Counted in chunks: 4000 requests of 60 chunks would be 240 000 marks."""
    chunks = [Chunk(at * 20 * MS, "text", "ab") for at in range(5, 65)]
    records = [
        stream(index=at, intended_ms=at * 10, sent_ms=at * 10 + at % 40, end_ms=at * 10 + 1300)
        for at in range(4000)
    ]
    records = [
        msgspec.structs.replace(
            one, chunks=tuple(Chunk(one.intended_ns + c.at_ns, c.kind, c.text) for c in chunks)
        )
        for one in records
    ]
    page = page_of(run(*records))
    assert len(page) < 1_500_000
    assert "are drawn: in each of 100 slices" in page and "100 of 4,000 requests" in page
    assert "234,000" not in page and "236,000 gaps" in page
