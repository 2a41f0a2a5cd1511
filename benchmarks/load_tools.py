"""Our figures beside those of other load generators: one server, one set of prompts, in turns.

`python -m benchmarks.load_tools [--tools-dir FOLDER] [--rounds 3] [--json]` writes the prompts,
starts `headrace serve` of the embedded model on loopback without its prefix cache (all send the
same prompts, again and again), and lets `headrace bench load`, `vllm bench serve`, GuideLLM and
AIPerf send them one after another, round after round. Each tool lives in an environment of its own
below --tools-dir; one that is not there is skipped, and how to set it up is printed. Every run of
ours is read under each tool's definitions. Exit status 1: no tool was there; 2: something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.load_peers import (
    PATHS,
    PEERS,
    PROMPTS,
    STATISTICS,
    TOTALS,
    Figures,
    Load,
    Peer,
    UnreadableError,
)
from benchmarks.load_runs import (
    RunError,
    as_script,
    endpoint,
    load_apart,
    serve_command,
    wait_ready,
)
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell
from headrace.bench.definitions import definition
from headrace.bench.record import RunRecord
from headrace.bench.report.files import read_run
from headrace.bench.summary import Spread, Summary, summarize

REPOSITORY = Path(__file__).resolve().parents[1]
TOKENIZER = Path("build/train/export/headrace-base")
TOOLS = Path("build/bench-tools")
# No tool may ask a hub or tell anyone; what they need is on this disk. AIPerf's services may
# take longer to find one another than its half minute.
SURROUNDINGS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "AIPERF_SERVICE_REGISTRATION_TIMEOUT": "300",
    "AIPERF_SERVICE_REGISTRATION_MAX_ATTEMPTS": "300",
    "AIPERF_SERVICE_PROFILE_START_TIMEOUT": "300",
}
# Of a log, when a tool failed.
SHOWN_CHARACTERS = 2000


def found_peers(folder: Path, wanted: Sequence[str]) -> tuple[list[Peer], list[Peer]]:
    """Those whose program is below `folder`, and the others."""
    peers = [PEERS[name] for name in wanted]
    here = [peer for peer in peers if _program(folder, peer).is_file()]
    return here, [peer for peer in peers if peer not in here]


def _program(folder: Path, peer: Peer) -> Path:
    return folder / peer.name / "bin" / peer.program


def setup_told(folder: Path, peer: Peer) -> str:
    """How to make a tool's environment, as commands."""
    lines = [each.format(dir=folder / peer.name) for each in peer.setup]
    return f"{peer.name}: not in {folder / peer.name}; to set it up:\n  " + "\n  ".join(lines)


def version(folder: Path, peer: Peer) -> str:
    """Of the tool's package, as its environment has it."""
    code = f"import importlib.metadata as m; print(m.version({peer.package!r}))"
    python = folder / peer.name / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def make_prompts(options: argparse.Namespace) -> list[str]:
    """Texts of exactly --input-tokens by the tokenizer; equal for equal seeds."""
    from headrace.bench.load.tokenization import load_tokenization
    from headrace.bench.prompts.exact import PromptWriter
    from headrace.bench.prompts.lengths import Fixed, Independent
    from headrace.bench.prompts.synthetic import synthetic

    writer = PromptWriter(load_tokenization(str(options.tokenizer)))
    sizes = Independent(Fixed(options.input_tokens), Fixed(options.output_tokens))
    made = synthetic(writer, options.requests, sizes, random.Random(options.seed))
    return [item.prompt.text or "" for item in made]


def write_prompts(prompts: Sequence[str], tokens: int, peers: Sequence[Peer], folder: Path) -> None:
    """A file for each tool, and `ours.jsonl`: the same prompts in the same order."""
    lines = {peer.name: peer.line for peer in peers}
    lines["ours"] = lambda prompt, tokens: {"prompt": prompt, "output_tokens": tokens}
    for name, line in lines.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line(each, tokens)) + "\n" for each in prompts)
        (folder / name / PROMPTS).write_text(text)


def our_flags(load: Load, data: Path, out: Path) -> list[str]:
    """Of `headrace bench load`."""
    flags = [load.url, "--model", load.model, "--endpoint-type", load.kind]
    flags += ["--dataset", str(data), "--dataset-kind", "jsonl", "--ignore-eos"]
    flags += ["--extra-body", '{"temperature": 0}', "--tokenizer", str(load.tokenizer)]
    flags += ["--requests", str(load.requests), "--seed", str(load.seed), "--save", str(out)]
    if load.rate is None:
        return [*flags, "--concurrency", str(load.concurrency)]
    return [*flags, "--rate", f"{load.rate:g}", "--arrivals", "constant"]


def run_ours(load: Load, folder: Path, turn: int, timeout_s: float) -> RunRecord:
    """One run, every chunk of it."""
    out = folder / "ours" / str(turn)
    load_apart(our_flags(load, folder / "ours" / PROMPTS, out), timeout_s=timeout_s)
    return read_run(out)


def run_peer(
    peer: Peer, load: Load, folder: Path, tools: Path, turn: int, timeout_s: float
) -> Figures:
    """One run of a tool. RunError with the end of its log where it failed."""
    out = folder / peer.name / str(turn)
    out.mkdir(parents=True)
    command = [str(_program(tools, peer))]
    command += peer.command(load, folder / peer.name / PROMPTS, out)
    log = out / "log.txt"
    environment = os.environ | SURROUNDINGS
    with log.open("wb") as file:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in environment.items() if name not in peer.unset},
            timeout=timeout_s,
            check=False,
        )
    told = log.read_text(errors="replace")[-SHOWN_CHARACTERS:]
    if done.returncode:
        raise RunError(f"{' '.join(command)} ended with {done.returncode}:\n{told}")
    try:
        return peer.read(out)
    except UnreadableError as error:
        raise RunError(f"{error}; it said:\n{told}") from error


def our_figures(summary: Summary) -> Figures:
    """Under the definitions that the summary is of, from the actual send time, as tools do."""
    if not summary.requests.completed:
        raise RunError(f"nothing succeeded: {summary.requests}")
    totals = (
        summary.duration_s,
        summary.rps,
        summary.tps_system,
        _mean(summary.prompt_tokens),
        _mean(summary.output_tokens),
    )
    figures: Figures = {
        (name, ""): value for name, value in zip(TOTALS, totals, strict=True) if value is not None
    }
    for metric, spread in summary.from_sent.items():
        for statistic in STATISTICS:
            figures[metric, statistic] = getattr(spread.distribution, statistic)
    return figures


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.distribution.mean


def under(run: RunRecord, name: str) -> Figures:
    """A run of ours under a tool's definitions."""
    return our_figures(summarize(run, definition=definition(name)))


def rows(peer: Peer, theirs: Sequence[Figures], runs: Sequence[RunRecord]) -> list[list[object]]:
    """Metric by metric: theirs, ours under their definitions, the difference, ours under ours."""
    as_theirs = [under(run, peer.name) for run in runs]
    as_ours = [under(run, "headrace") for run in runs]
    canonical = {each.name: each.canonical for each in definition(peer.name).metrics}
    found: list[list[object]] = []
    for key in theirs[0]:
        metric, statistic = key
        our_name = canonical.get(metric, metric)
        them, us = _values(theirs, key), _values(as_theirs, key)
        ours = _values(as_ours, (our_name or "", statistic))
        label = f"{peer.name} {metric}{f', {statistic}' if statistic else ''}"
        found.append([label, _told(them), _told(us), difference(them, us), _told(ours)])
    return found


def _values(figures: Sequence[Figures], key: tuple[str, str]) -> list[float]:
    return [figure[key] for figure in figures if key in figure]


def _told(values: Sequence[float]) -> str | None:
    """The median, and [least..most] of several."""
    if not values:
        return None
    middle = number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} [{number(min(values))}..{number(max(values))}]"


def difference(theirs: Sequence[float], ours: Sequence[float]) -> str | None:
    """Of medians: how much more than theirs ours is, in percent of theirs."""
    if not theirs or not ours or not statistics.median(theirs):
        return None
    share = statistics.median(ours) / statistics.median(theirs) - 1
    return f"{share:+.1%}"


def measure(
    options: argparse.Namespace, peers: Sequence[Peer], folder: Path
) -> tuple[Load, dict[str, list[Figures]], list[RunRecord]]:
    """All turns: ours, then each tool; and again. The first run of ours is to warm up."""
    write_prompts(make_prompts(options), options.output_tokens, peers, folder)
    theirs: dict[str, list[Figures]] = {each.name: [] for each in peers}
    ours: list[RunRecord] = []
    with endpoint(serve_command("--no-enable-prefix-caching", *options.serve)) as server:
        wait_ready(server.url)
        load = Load(
            url=server.url,
            model=server.facts["model"],
            tokenizer=options.tokenizer,
            kind=options.endpoint_type,
            requests=options.requests,
            concurrency=options.concurrency,
            rate=options.rate,
            output_tokens=options.output_tokens,
            seed=options.seed,
        )
        few = load._replace(requests=min(load.requests, 2 * load.concurrency))
        run_ours(few, folder, 0, options.timeout)
        for turn in range(1, options.rounds + 1):
            tell(f"round {turn} of {options.rounds}: headrace")
            ours.append(run_ours(load, folder, turn, options.timeout))
            for peer in peers:
                tell(f"round {turn} of {options.rounds}: {peer.name}")
                theirs[peer.name].append(
                    run_peer(peer, load, folder, options.tools_dir, turn, options.timeout)
                )
    return load, theirs, ours


def report(
    load: Load, input_tokens: int, rounds: int, body: Sequence[list[object]], peers: Sequence[Peer]
) -> str:
    """The table, and below it why figures differ."""
    users = f"{load.concurrency} users" if load.rate is None else f"{load.rate:g} requests/s"
    title = (
        f"`{load.model}`, {load.kind}, {load.requests} requests of {input_tokens} tokens, answers "
        f"of {load.output_tokens}, {users}, seed {load.seed}, {rounds} rounds in turns; times in ms"
    )
    columns = ["metric", "theirs", "ours, their definition", "difference", "ours, our definition"]
    parts = [title, table(columns, body)]
    for peer in peers:
        lines = [f"* `{metric}`: {why}" for metric, why in peer.why.items()]
        parts.append(f"{peer.name}:\n" + "\n".join(lines))
    return "\n\n".join(parts)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """With what --quick means put in; paths are absolute."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--tools-dir", type=Path, default=REPOSITORY / TOOLS)
    parser.add_argument("--tool", action="append", choices=list(PEERS), help="only it; repeatable")
    parser.add_argument("--tokenizer", type=Path, default=REPOSITORY / TOKENIZER)
    parser.add_argument("--endpoint-type", choices=list(PATHS), default="chat")
    parser.add_argument("--requests", type=int, default=200, help="of each run")
    parser.add_argument("-c", "--concurrency", type=int, default=4)
    parser.add_argument("--rate", type=float, help="requests/s, evenly, in place of users")
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    parser.add_argument(
        "--serve", action="append", default=[], metavar="FLAG", help="of the server; repeatable"
    )
    parser.add_argument("--save", type=Path, help="folder for prompts, logs and result files")
    parser.add_argument("--quick", action="store_true", help="a few requests, one round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    options.tools_dir, options.tokenizer = options.tools_dir.resolve(), options.tokenizer.resolve()
    options.tool = options.tool or list(PEERS)
    if options.quick:
        options.requests, options.rounds, options.concurrency = 12, 1, 2
        options.input_tokens, options.output_tokens = 64, 16
    return options


def main() -> int:
    """Measure and print."""
    options = arguments()
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    if not (options.tokenizer / "tokenizer.json").is_file():
        raise RunError(
            f"--tokenizer {options.tokenizer}: has no tokenizer.json; name the Hugging Face folder "
            "of the model that is served (training exports the embedded one)"
        )
    peers, missing = found_peers(options.tools_dir, options.tool)
    for peer in missing:
        tell(setup_told(options.tools_dir, peer))
    if not peers:
        return 1
    versions = {each.name: version(options.tools_dir, each) for each in peers}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.save or Path(temporary)).resolve()
        load, theirs, ours = measure(options, peers, folder)
    body = [row for each in peers for row in rows(each, theirs[each.name], ours)]
    if options.json:
        found: dict[str, Any] = {"machine": facts, "versions": versions, "rows": body}
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        told = ", ".join(f"{name} {each}" for name, each in versions.items())
        line = f"{surroundings_line(facts)}; {told}"
        shown = report(load, options.input_tokens, options.rounds, body, peers)
        sys.stdout.write(f"{shown}\n\n{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(as_script(main))
