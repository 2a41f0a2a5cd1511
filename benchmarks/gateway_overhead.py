"""What the gateway costs, beside a loop that only passes bytes on, and beside LiteLLM's proxy.

`python -m benchmarks.gateway_overhead [--peers-dir FOLDER] [--rounds 3]` starts `headrace gateway`
(keys, budgets and limits at every level, ledger, two targets, logs), `bare_gateway.py` (Starlette
and aiohttp) and LiteLLM's proxy in turns, round after round, each as one process in front of the
same endpoint that answers at once (`instant_endpoint.py`), all on loopback. A gateway has a core of
its own, and loader and endpoint have the others, where there are two and more. Added times are
quantiles through a gateway less those of the endpoint alone in the same round. Rates and one
connection are measured with `keep_alive_loader.py`, since `headrace bench load` would be the limit
there; 500 requests/s, open loop from the intended time, with `headrace bench load`. Each peer lives
in an environment of its own below --peers-dir, which is made where it is not there. Exit status 1:
a target was missed; 2: something failed. `--quick` judges nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gateway_peers import (
    BARE,
    HEADRACE,
    KEY,
    LITELLM,
    MODEL,
    Peer,
    import_s,
    make_environment,
    running,
)
from benchmarks.load_runs import RunError, as_script, cores, cpu_s, endpoint, json_of, load_apart
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell
from benchmarks.process_memory import children, resident

REPOSITORY = Path(__file__).resolve().parents[1]
PEERS_DIR = Path("build/gateway-peers")
RATE = 500.0
CONNECTIONS = 32
STREAMS = 40
DIRECT = "direct"
Figures = dict[str, float]

# Name of a figure, what it is called, and digits behind the point.
ROWS: tuple[tuple[str, str, int], ...] = (
    ("added_one_p50_ms", "added at one connection, p50, ms", 2),
    ("added_one_p99_ms", "p99, ms", 2),
    ("added_rate_p50_ms", f"added at {RATE:g} requests/s, open loop, p50, ms", 2),
    ("added_rate_p99_ms", "p99, ms", 2),
    ("saturated_per_s", f"requests/s at {CONNECTIONS} connections", 0),
    ("cpu_us", "its CPU time for each of them, µs", 0),
    ("chunks_per_s", f"chunks/s of {STREAMS} streams", 0),
    ("start_mb", "memory at the start, MB", 0),
    ("half_mb", "after half of the requests, MB", 0),
    ("end_mb", "after all of them, MB", 0),
    ("import_s", "import, s", 2),
    ("first_answer_s", "start to first answer, s", 2),
)
# Of `headrace gateway`: the promise. A ratio is to the peer's median.
MOST = {"added_rate_p50_ms": 1.0, "added_rate_p99_ms": 5.0, "first_answer_s": 1.0}
LEAST_SHARES = {BARE.name: 0.5, LITELLM.name: 25.0}


class Load:
    """Whom the requests are sent by; on: the cores for it and the endpoint."""

    def __init__(self, options: argparse.Namespace, on: Sequence[int] | None) -> None:
        self._seconds = options.seconds
        self._timeout_s = options.timeout
        self.on = on

    def kept(self, url: str, connections: int, *flags: str) -> dict[str, Any]:
        """By `keep_alive_loader`. RunError where an answer was another than 200."""
        command = [sys.executable, "-m", "benchmarks.keep_alive_loader", url]
        command += ["--connections", str(connections), "--key", KEY, "--model", MODEL]
        if "--seconds" not in flags:
            command += ["--seconds", f"{self._seconds:g}"]
        found = json_of([*command, *flags], timeout_s=self._timeout_s, on=self.on)
        if found["failed"]:
            raise RunError(f"{url}: {found['failed']} answers failed: {found['failure']}")
        return found

    def open_loop(self, url: str) -> Figures:
        """By `headrace bench load` at RATE. RunError where a request failed."""
        flags = [url, "--model", MODEL, "--no-streaming", "--rate", f"{RATE:g}"]
        flags += ["--requests", str(round(RATE * self._seconds)), "--metrics-path", ""]
        flags += ["--input-tokens", "32", "--output-tokens", "16", "--quiet"]
        flags += ["--header", f"authorization: Bearer {KEY}"]
        summary = load_apart(flags, timeout_s=self._timeout_s, on=self.on)["summary"]
        if summary["requests"]["failed"]:
            raise RunError(f"{url}: requests failed: {summary['requests']['errors']}")
        times = summary["from_intended"]["e2e"]["distribution"]
        bound = float(summary["client"]["client_bound"])
        return {"p50_ms": times["p50"], "p99_ms": times["p99"], "client_bound": bound}


def direct_figures(load: Load, url: str) -> Figures:
    """Of the endpoint alone."""
    connection, rate = load.kept(url, 1), load.open_loop(url)
    full, streams = load.kept(url, CONNECTIONS), load.kept(url, STREAMS, "--stream")
    return {
        "one_p50_ms": connection["p50_ms"],
        "one_p99_ms": connection["p99_ms"],
        "rate_p50_ms": rate["p50_ms"],
        "rate_p99_ms": rate["p99_ms"],
        "client_bound": rate["client_bound"],
        "saturated_per_s": full["requests_per_s"],
        "chunks_per_s": streams["chunks_per_s"],
    }


def peer_figures(load: Load, url: str, pid: int, direct: Figures) -> Figures:
    """Of a gateway that runs. A rate that is not held has no added times."""
    found: Figures = {"start_mb": memory_mb(pid)}
    load.kept(url, CONNECTIONS, "--requests", str(10 * CONNECTIONS))
    connection = load.kept(url, 1)
    found["added_one_p50_ms"] = connection["p50_ms"] - direct["one_p50_ms"]
    found["added_one_p99_ms"] = connection["p99_ms"] - direct["one_p99_ms"]
    before_s = gateway_cpu_s(pid)
    full = load.kept(url, CONNECTIONS)
    found["cpu_us"] = 1e6 * (gateway_cpu_s(pid) - before_s) / full["requests"]
    found["saturated_per_s"] = full["requests_per_s"]
    found["loader_share"] = full["cpu_share"]
    if full["requests_per_s"] > RATE:
        rate = load.open_loop(url)
        found["added_rate_p50_ms"] = rate["p50_ms"] - direct["rate_p50_ms"]
        found["added_rate_p99_ms"] = rate["p99_ms"] - direct["rate_p99_ms"]
        found["client_bound"] = rate["client_bound"]
    found["chunks_per_s"] = load.kept(url, STREAMS, "--stream")["chunks_per_s"]
    return found


def memory_figures(load: Load, url: str, pid: int, requests: int, most_s: float) -> Figures:
    """Memory after half and all of so many requests; fewer where they take longer than most_s."""
    limit = ("--requests", str(requests // 2), "--seconds", f"{most_s / 2:g}")
    first = load.kept(url, CONNECTIONS, *limit)
    half_mb = memory_mb(pid)
    second = load.kept(url, CONNECTIONS, *limit)
    done = first["requests"] + second["requests"]
    return {"half_mb": half_mb, "end_mb": memory_mb(pid), "memory_requests": done}


def memory_mb(pid: int) -> float:
    """In pages of its own and of files, its children included."""
    found = [resident(each) for each in (pid, *children(pid))]
    return sum(each.own + each.files for each in found) / 1e6


def gateway_cpu_s(pid: int) -> float:
    """Its children included."""
    return sum(cpu_s(each) for each in (pid, *children(pid)))


def measure(
    options: argparse.Namespace, peers: Mapping[Peer, Path], folder: Path
) -> dict[str, list[Figures]]:
    """All turns, by peer, and of the endpoint alone; memory in the last round."""
    free = cores()
    gateways, others = (free[:1], free[1:]) if len(free) > 1 else (None, None)
    load = Load(options, others)
    found: dict[str, list[Figures]] = {
        name: [] for name in (DIRECT, *(each.name for each in peers))
    }
    source = [sys.executable, "-m", "benchmarks.instant_endpoint", "--chunks", str(options.chunks)]
    with endpoint(source, on=others) as provider:
        for turn in range(1, options.rounds + 1):
            tell(f"round {turn} of {options.rounds}: the endpoint alone")
            direct = direct_figures(load, provider.url)
            found[DIRECT].append(direct)
            for peer, python in peers.items():
                tell(f"round {turn} of {options.rounds}: {peer.title}")
                figures = {"import_s": import_s(peer, python)}
                where = folder / peer.name / str(turn)
                with running(peer, python, provider.url, where, gateways) as gateway:
                    figures["first_answer_s"] = gateway.first_answer_s
                    figures |= peer_figures(load, gateway.url, gateway.pid, direct)
                    if turn == options.rounds:
                        tell(f"memory of {peer.title}: {options.requests:,} requests")
                        figures |= memory_figures(
                            load, gateway.url, gateway.pid, options.requests, options.memory_seconds
                        )
                found[peer.name].append(figures)
    return found


def values(rounds: Sequence[Figures], name: str) -> list[float]:
    """Of the rounds that have the figure."""
    return [each[name] for each in rounds if name in each]


def told(rounds: Sequence[Figures], name: str, digits: int) -> str | None:
    """The median, and [least..most] of several."""
    seen = values(rounds, name)
    if not seen:
        return None
    middle = number(statistics.median(seen), digits)
    if len(seen) == 1:
        return middle
    return f"{middle} [{number(min(seen), digits)}..{number(max(seen), digits)}]"


def ratio(ours: Sequence[Figures], theirs: Sequence[Figures], name: str) -> float | None:
    """Of medians, ours to theirs; None where a side has no figure, or one that is no divisor."""
    us, them = values(ours, name), values(theirs, name)
    if not us or not them or statistics.median(them) <= 0:
        return None
    return statistics.median(us) / statistics.median(them)


def missed(found: Mapping[str, Sequence[Figures]]) -> list[str]:
    """What of the targets does not hold, in words."""
    ours = found[HEADRACE.name]
    said = []
    for name, most in MOST.items():
        seen = values(ours, name)
        if not seen or statistics.median(seen) > most:
            said.append(f"{name} {told(ours, name, 2)}, at most {most:g} asked")
    for name, least in LEAST_SHARES.items():
        share = ratio(ours, found.get(name, ()), "saturated_per_s")
        if share is not None and share < least:
            said.append(f"requests/s are {share:.2f} of {name}'s, at least {least:g} asked")
    return said


def report(found: Mapping[str, Sequence[Figures]], peers: Sequence[Peer]) -> str:
    """The table, and what has to be known of it."""
    ours, others = found[HEADRACE.name], [each for each in peers if each is not HEADRACE]
    columns = ["", HEADRACE.title]
    for peer in others:
        columns += [peer.title, "ours / theirs"]
    rows: list[list[object]] = []
    for name, title, digits in ROWS:
        row: list[object] = [title, told(ours, name, digits)]
        for peer in others:
            theirs = found[peer.name]
            row += [told(theirs, name, digits), number(ratio(ours, theirs, name))]
        rows.append(row)
    direct = found[DIRECT]
    share = max(each["loader_share"] for peer in peers for each in found[peer.name])
    lines = [
        table(columns, rows),
        "",
        f"* The endpoint alone: {told(direct, 'one_p50_ms', 3)} ms at one connection (p50), "
        f"{told(direct, 'rate_p50_ms', 3)} ms at {RATE:g} requests/s, "
        f"{told(direct, 'saturated_per_s', 0)} requests/s, {told(direct, 'chunks_per_s', 0)} "
        f"chunks/s. Through a gateway the loader had at most {share:.0%} of a core: neither was "
        "the limit.",
    ]
    runs = [each for rounds in found.values() for each in values(rounds, "client_bound")]
    if any(runs):
        lines.append(
            f"* `headrace bench load` was the limit itself in {sum(runs):.0f} of {len(runs)} runs "
            f"at {RATE:g} requests/s, by its own verdict: times of those are not the gateways'."
        )
    for peer in peers:
        done = values(found[peer.name], "memory_requests")
        lines.append(f"* {peer.title}: memory after {done[-1]:,.0f} requests at the end.")
    return "\n".join(lines)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """With what --quick means put in; paths are absolute."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--peers-dir", type=Path, default=REPOSITORY / PEERS_DIR)
    parser.add_argument("--peer-python", type=Path, help="of the bare loop, with aiohttp")
    parser.add_argument("--no-bare", action="store_true")
    parser.add_argument("--no-litellm", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--chunks", type=int, default=1000, help="of each stream")
    parser.add_argument("--requests", type=int, default=100_000, help="until memory is looked at")
    parser.add_argument(
        "--memory-seconds", type=float, default=300.0, help="for those requests at most"
    )
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one measurement")
    parser.add_argument("--save", type=Path, help="folder for configurations, logs and figures")
    parser.add_argument("--quick", action="store_true", help="seconds, and nothing is judged")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    options.peers_dir = options.peers_dir.resolve()
    if options.quick:
        options.rounds, options.seconds, options.requests, options.chunks = 1, 0.5, 400, 50
    return options


def chosen(options: argparse.Namespace) -> dict[Peer, Path]:
    """The gateways that are measured, each with its Python."""
    peers = {HEADRACE: Path(sys.executable)}
    if options.no_bare:
        tell("without the bare loop: --no-bare")
    else:
        given: Path | None = options.peer_python
        peers[BARE] = given or make_environment(BARE, options.peers_dir)
    if options.no_litellm:
        tell("without LiteLLM's proxy: --no-litellm")
    else:
        peers[LITELLM] = make_environment(LITELLM, options.peers_dir)
    return peers


def main() -> int:
    """Measure and print."""
    options = arguments()
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    peers = chosen(options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.save or Path(temporary)).resolve()
        found = measure(options, peers, folder)
        if options.save is not None:
            kept = json.dumps({"machine": facts, "rounds": found}, indent=2)
            (folder / "figures.json").write_text(kept + "\n")
    said = [] if options.quick else missed(found)
    if options.json:
        sys.stdout.write(json.dumps({"machine": facts, "rounds": found, "missed": said}) + "\n")
    else:
        shown = report(found, list(peers))
        lines = [f"* Missed: {each}." for each in said]
        sys.stdout.write("\n".join([shown, *lines, "", surroundings_line(facts)]) + "\n")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(as_script(main))
