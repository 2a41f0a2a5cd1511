"""The tables of a report: `table` draws them in a terminal and `html` on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.bench.record import RequestRecord, RunMetadata
from headrace.bench.report.latency_sheet import latencies
from headrace.bench.server_figures import ServerFigures
from headrace.bench.statistics import CONFIDENCE, Interval
from headrace.bench.summary import Summary
from headrace.bench.token_count import DISAGREES_BEYOND
from headrace.page.figures import DASH, count, figure, share
from headrace.page.sheet import Cell, Sheet


def sheets(summary: Summary) -> list[Sheet]:
    """Every figure of a summary, apart from the definitions and what the run was."""
    return [latencies(summary), rates(summary), *beside(summary), client(summary)]


def beside(summary: Summary) -> list[Sheet]:
    """The small tables: requests, goodput, tokens, server, cost, as far as there are any."""
    made = [requests(summary)]
    if summary.goodput is not None:
        made.append(goodput(summary))
    made.append(tokens(summary))
    if summary.server is not None:
        made.append(server(summary.server))
    if summary.cost.basis != "unknown":
        made.append(cost(summary))
    return made


def rates(summary: Summary) -> Sheet:
    """What was done per second, and how much at once."""
    steady, running = summary.steady, summary.concurrency
    lines = [
        ("duration", figure(summary.duration_s), "s"),
        ("offered", figure(summary.offered_per_s), "requests/s"),
        ("completed", figure(summary.rps), "requests/s"),
        ("output", figure(summary.tps_system), "tokens/s"),
        ("output and prompts", figure(summary.tps_total), "tokens/s"),
        ("in flight, mean", figure(running.mean), "requests"),
        ("in flight, by Little's law", figure(running.little), "requests"),
        ("in flight, maximum", count(running.peak), "requests"),
    ]
    if steady is not None:
        span = f"{figure(steady.start_s)}–{figure(steady.end_s)} s"
        lines += [
            (f"completed, steady ({span})", figure(steady.requests_per_s), "requests/s"),
            ("output, steady", figure(steady.tokens_per_s), "tokens/s"),
            ("in flight, steady", figure(steady.in_flight), "requests"),
        ]
    stall = summary.longest_stall
    if stall is not None:
        where = f"longest stall (request {stall.request}, at {figure(stall.at_s)} s)"
        lines.append((where, figure(stall.gap_ms), "ms"))
    notes = [
        "Steady: from the end of the first answer to the last start, without filling and draining."
    ]
    if summary.saturation is not None:
        notes.append(summary.saturation.told)
    return _plain("Rates", lines, notes)


def requests(summary: Summary) -> Sheet:
    """How they ended; errors by class and by status."""
    of = summary.requests
    lines = [
        ("measured", count(of.measured), ""),
        ("completed", count(of.completed), _part(of.completed, of.measured)),
        ("failed", count(of.failed), _part(of.failed, of.measured)),
        ("cut off by the run's end", count(of.cancelled), _part(of.cancelled, of.measured)),
        ("warm-up, not measured", count(of.warmup), ""),
    ]
    for title, counts in (
        ("error", of.errors),
        ("status of failed requests", of.statuses),
        ("finish reason", of.finish_reasons),
    ):
        lines += [
            (f"{title}: {name}", count(n), _part(n, of.measured)) for name, n in counts.items()
        ]
    rows = [
        (
            Cell(name, verdict=False if name == "failed" and of.failed else None),
            Cell(number),
            Cell(part),
        )
        for name, number, part in lines
    ]
    return Sheet("Requests", ("", "requests", "share"), tuple(rows))


def goodput(summary: Summary) -> Sheet:
    """How the run fared under its SLO."""
    of = summary.goodput
    if of is None:
        return Sheet("Goodput", ("",), ())
    rows = [
        (
            Cell(one.condition, verdict=one.met),
            Cell(DASH if one.share is None else share(one.share)),
            Cell(figure(one.value)),
            Cell(_word(one.met)),
        )
        for one in of.conditions
    ]
    notes = []
    if of.good is not None:
        notes.append(
            f"Good: {count(of.good)} of {count(of.judged)} requests ({share(of.fraction)}"
            f"{_between(of.fraction_interval)}), "
            f"{figure(of.requests_per_s)} requests/s, {figure(of.tokens_per_s)} tokens/s."
        )
    if any(one.value is not None for one in of.conditions):
        notes.append("Values of the run are in ms, rates in tokens/s.")
    if of.undecided:
        notes.append(f"{count(of.undecided)} requests could not be judged.")
    notes.append(
        f"Judged by {of.definition} from the {of.clock} send time; a failed request misses "
        "every limit."
    )
    columns = ("condition", "of requests", "of the run", "met")
    return Sheet(f"Goodput under {of.slo}", columns, tuple(rows), tuple(notes))


def _between(of: Interval | None) -> str:
    """Of shares; empty where it is not known."""
    if of is None or of.low is None or of.high is None:
        return ""
    return f", the true share {share(of.low)} to {share(of.high)} with {CONFIDENCE:.0%} confidence"


def tokens(summary: Summary) -> Sheet:
    """What was counted by whom."""
    of = summary.tokens
    rows = (
        (Cell("prompt"), *_counted(of.prompt_server, of.prompt_client, of.prompt_disagreement)),
        (Cell("output"), *_counted(of.output_server, of.output_client, of.output_disagreement)),
        (Cell("of it reasoning"), Cell(count(of.reasoning)), Cell(DASH), Cell(DASH)),
        (
            Cell("cached prompt" + _of(of.cached_share)),
            Cell(count(of.cached)),
            Cell(DASH),
            Cell(DASH),
        ),
    )
    notes = []
    if of.disagreeing:
        notes.append(
            f"In {count(of.disagreeing)} requests server and client differ by more than "
            f"{DISAGREES_BEYOND:.0%}: figures per token are only as good as these counts."
        )
    if of.uncounted:
        notes.append(f"The output of {count(of.uncounted)} requests was not counted.")
    if of.off_length:
        notes.append(f"{count(of.off_length)} outputs do not have the requested length.")
    return Sheet("Tokens", ("tokens", "server", "client", "differ"), rows, tuple(notes))


def server(of: ServerFigures) -> Sheet:
    """What its /metrics told of the measured span."""
    lines = [
        ("MBU", share(of.mbu), "of the bandwidth"),
        ("MFU", share(of.mfu), "of the multiplications"),
        ("KV blocks in use, maximum", share(of.kv_use_most), "of the blocks"),
        ("prefix cache hits", share(of.prefix_hit_share), "of prompt tokens"),
        ("preemptions", count(of.preemptions), "requests"),
    ]
    if of.drafts is not None:
        lines += [
            ("tokens of a step with drafts", figure(of.drafts.tokens_per_step), "of a request"),
            ("cost of a step with drafts", figure(of.drafts.cost_ratio), "of one without"),
        ]
    notes = (
        f"From {of.readings} readings of /metrics, {figure(of.from_s)} to {figure(of.to_s)} s "
        "of the run; they include whatever else the server did then. MBU, MFU: of the time "
        "spent in steps.",
    )
    return _plain("Server, as it reports", lines, notes)


def cost(summary: Summary) -> Sheet:
    """What it cost, where a price was given, or that it is unknown, and why."""
    of = summary.cost
    known = of.run_usd is not None
    lines = [
        ("the run", figure(of.run_usd) if known else "unknown", "US$" if known else ""),
        ("a request", _usd(of.per_request), "US$"),
        ("a million output tokens", _usd(of.per_million_output), "US$"),
        ("a million tokens, with prompts", _usd(of.per_million), "US$"),
        ("output tokens/s per US$/h", figure(of.tokens_per_s_per_usd), ""),
    ]
    basis = {
        "tokens": "At the endpoint's prices per token; the third line divides the whole cost "
        "by the output tokens.",
        "machine": "At the machine's price by the hour, from the first start to the last end.",
    }.get(of.basis, "")
    notes = [basis] if known and basis else []
    notes += [f"Prices: {of.prices.source}."] if of.prices.source else []
    notes += [f"Unknown: {of.why}."] if of.why else []
    return _plain("Cost", lines, notes)


def _usd(value: float | None) -> str:
    return DASH if value is None else figure(value)


def client(summary: Summary) -> Sheet:
    """Whether the load generator was the limit."""
    of = summary.client
    lines = [
        ("schedule lag, p99", figure(of.schedule_lag_p99_ms), "ms"),
        ("event loop lag, p99", figure(of.loop_lag_p99_ms), "ms"),
        ("lag allowed", figure(of.allowed_lag_ms), "ms"),
        ("CPU, busiest process", share(of.cpu_share), "of a core"),
        ("garbage collections", count(of.collections), ""),
        ("longest of them", figure(of.collection_most_ms), "ms"),
    ]
    return _plain("Client", lines, of.sentences)


def definitions(summary: Summary) -> Sheet:
    """What the metrics of the report count."""
    rows = tuple(
        (Cell(row.name), Cell(row.canonical or DASH), Cell(row.counts)) for row in summary.table
    )
    notes = (f"As defined by {summary.source}.",)
    return Sheet(f"Definitions: {summary.definition}", ("metric", "ours", "counts"), rows, notes, 3)


def about(facts: RunMetadata) -> Sheet:
    """What a reader needs to repeat the run."""
    rows = tuple(
        (Cell(key), Cell(DASH if value is None else str(value))) for key, value in facts.items()
    )
    return Sheet("Provenance", ("", "value"), rows, names=2)


def errors(records: Sequence[RequestRecord], most: int = 20) -> Sheet:
    """What failed requests said, the most frequent first."""
    said = Counter(
        (one.failure.kind, "" if one.status is None else str(one.status), one.failure.message)
        for one in records
        if one.measured and one.failure is not None
    )
    rows = tuple(
        (Cell(kind), Cell(status), Cell(message), Cell(count(times)))
        for (kind, status, message), times in said.most_common(most)
    )
    left = len(said) - len(rows)
    notes = (f"{count(left)} more messages, each of fewer requests, are in requests.csv.",)
    columns = ("error", "status", "message", "requests")
    return Sheet("Errors", columns, rows, notes if left else (), names=3)


def _plain(title: str, lines: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> Sheet:
    """Of what is known: a line without a figure says nothing."""
    rows = tuple(
        (Cell(name), Cell(value), Cell(unit)) for name, value, unit in lines if value != DASH
    )
    return Sheet(title, ("", "value", "unit"), rows, tuple(notes))


def _part(some: int, of: int) -> str:
    return share(some / of) if of else ""


def _of(part: float | None) -> str:
    return "" if part is None else f" ({share(part)})"


def _counted(server: int | None, client: int | None, differ: float | None) -> tuple[Cell, ...]:
    return Cell(count(server)), Cell(count(client)), Cell(share(differ))


def _word(met: bool | None) -> str:
    return DASH if met is None else "yes" if met else "no"
