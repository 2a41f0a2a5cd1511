"""headrace beside llama.cpp or ik_llama.cpp: the same files, threads, machine and loads, in turns.

    python benchmarks/vs_llamacpp.py MODEL.gguf ... --peers FOLDER [--peer ik]
                                     [--level avx2|avx_vnni] [--cases prefill-512,decode]
                                     [--minutes 2] [--serve OPTIONS]

Every case is one of `headrace bench against`: both servers answer the same prompts over HTTP, A B
A B, and beside the ratio stands the largest one that the machine's limits of these minutes allow.
The peer's server is built from its sdist (`benchmarks/llamacpp/build.py`) and started for every
number of requests anew, with as many slots as there are requests. With `--first-touch N` the first
prompt of 512 and the first 32 streams of N fresh processes come beside the others. Models are those
of `shaped_model.py`, Qwen3-0.6B's shape and random weights, or any other. Drafts are off on both
sides. Let nothing else run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.beside import Aim, Measured, Session, first_touched, measured, report
from benchmarks.llamacpp.build import LEVELS, PEERS, Peer, built
from benchmarks.markdown import surroundings, surroundings_line, tell
from headrace.bench.against.cases import CASES, AgainstCase, cases_of
from headrace.weights.gguf.values import FILE_TYPES
from headrace.weights.open import open_checkpoint

NAMES = {"llama": "llama.cpp", "ik": "ik_llama.cpp"}
FLAGS = {
    # Prompts that are new to it are not to be looked up and stored again.
    "llama": ("--cache-ram", "0"),
    # What it repacks at load it multiplies faster.
    "ik": ("-rtr", "--cache-ram", "0"),
}
FLAGS_OF_MANY: Mapping[str, Sequence[str]] = {
    "llama": (),
    # Its flash attention asserts on a batch of several sequences.
    "ik": ("-no-fa",),
}
SLOT_MARGIN = 1.15
"""A slot's context by the case's tokens: prompts are texts, and the peer's tokenizer cuts them."""
SLOT_STEP = 256

FIRST_TOUCH = (("decode", "prefill-512"), ("streams-2", "streams-32"))
"""A case that warms up, and the one whose memory was never touched."""
FIRST_TOUCH_MINUTES = 0.3
"""The case that warms up fits into it, and of the other only what comes first is taken."""

_K_KINDS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
_FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4")
_OF_STREAMS: Mapping[str, Aim] = {"Q8_0": 4.5, **dict.fromkeys(_K_KINDS, 3.5), "BF16": "share"}
_BY_KIND: Mapping[str, Mapping[str, Aim]] = {
    "prefill-512": {"Q8_0": 4.0, "Q4_0": 4.0, **dict.fromkeys(_K_KINDS, 3.0), "BF16": "share"},
    "decode": {**dict.fromkeys(_FOUR_BITS, 1.6), "BF16": "share"},
    "streams-8": _OF_STREAMS,
    "streams-32": _OF_STREAMS,
}
"""Beside llama.cpp, by case and kind."""
_OF_ALL_KINDS: Mapping[str, Aim] = {"prefill-4096": 4.0, "decode-at-16384": 2.5}
"""Beside llama.cpp, by case."""


def aim_of(peer: str, kind: str, case: AgainstCase) -> Aim | None:
    """What is aimed at beside a peer with weights of a kind; None where nothing is."""
    if peer == "llama":
        return _OF_ALL_KINDS.get(case.name) or _BY_KIND.get(case.name, {}).get(kind)
    if case.figure == "prefill":
        return 1.2
    if case.figure == "decode":
        return 1.1
    return 1.5 if case.name in ("streams-8", "streams-32") else None


def command_of(peer: Peer, kind: str, model: Path, users: int, positions: int) -> str:
    """The peer's server with a slot for each of `users` requests of so many positions."""
    threads = str(len(os.sched_getaffinity(0)))
    slot = -(-int(positions * SLOT_MARGIN) // SLOT_STEP) * SLOT_STEP
    words = [peer.tool("llama-server"), "-m", str(model), "-t", threads, "-tb", threads]
    words += ["-np", str(users), "-c", str(users * slot), "-b", "2048", "-ub", "512"]
    words += [*FLAGS[kind], *(FLAGS_OF_MANY[kind] if users > 1 else ())]
    return " ".join([*words, "--host", "127.0.0.1", "--port", "{port}"])


def sessions(
    peer: Peer, kind: str, model: Path, cases: Sequence[AgainstCase], minutes: float
) -> Iterator[Session]:
    """One for each number of requests."""
    for users, some in groupby(sorted(cases, key=lambda case: case.users), lambda case: case.users):
        group = sorted(some, key=lambda case: case.positions)
        positions = max(case.positions for case in group)
        yield Session(command_of(peer, kind, model, users, positions), group, minutes)


def touches(
    peer: Peer, kind: str, model: Path, processes: int, name: str, serve: Sequence[str]
) -> Iterator[Measured]:
    """What is touched for the first time."""
    for names in FIRST_TOUCH:
        cases = [CASES[each] for each in names]
        users, positions = (max(getattr(c, what) for c in cases) for what in ("users", "positions"))
        command = command_of(peer, kind, model, users, positions)
        session = Session(command, cases, FIRST_TOUCH_MINUTES)
        yield first_touched(name, model, session, serve, processes)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--peers", type=Path, required=True, help="folder that peers are built in")
    parser.add_argument("--peer", choices=PEERS, default="llama")
    parser.add_argument("--level", choices=LEVELS, default="native", help="of both")
    parser.add_argument("--cases", help="of `headrace bench against`; default: its own")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each number of requests")
    parser.add_argument("--first-touch", type=int, default=0, help="fresh processes; 0: not shown")
    parser.add_argument("--serve", default="", help="options of our server, in one word")
    options = parser.parse_args()
    peer = built(options.peers.resolve(), options.peer, options.level)
    cases = cases_of(options.cases)
    serve = options.serve.split()
    if options.level != "native":
        serve += ["--cpu-level", options.level]
    facts = surroundings(datetime.now(UTC))
    every: list[Measured] = []
    aims: dict[tuple[str, str], Aim] = {}
    for model in map(Path.resolve, options.models):
        kind = _kind(model)
        aims |= {
            (kind, case.name): aim
            for case in CASES.values()
            if (aim := aim_of(options.peer, kind, case)) is not None
        }
        for session in sessions(peer, options.peer, model, cases, options.minutes):
            every.append(measured(kind, model, session, serve))
        if options.first_touch:
            every += touches(peer, options.peer, model, options.first_touch, kind, serve)
        tell(report(NAMES[options.peer], every, aims))
    print(report(NAMES[options.peer], every, aims))
    print(f"\n{surroundings_line(facts)}; level {options.level}")


def _kind(model: Path) -> str:
    """What most weights of a GGUF file are stored in, as it says."""
    names = {number: codec for codec, number in FILE_TYPES.items()}
    number = open_checkpoint(model).metadata["general.file_type"]
    return names.get(int(str(number)), model.stem)


if __name__ == "__main__":
    main()
