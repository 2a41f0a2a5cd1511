"""Both servers from their start to the last pair."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from headrace.bench.against.cases import AgainstCase
from headrace.bench.against.loads import Loads, with_model
from headrace.bench.against.peer import (
    ServerFacts,
    engine_labels,
    is_here,
    is_ready,
    server_facts,
    with_file,
)
from headrace.bench.against.process import StartedServer, free_port, started
from headrace.bench.against.turns import Comparison, Run, in_turns
from headrace.bench.client.endpoints import Endpoint, split_url
from headrace.bench.load.tokenization import load_tokenization
from headrace.bench.machine import Probe, measure_machine
from headrace.embedded import embedded_model
from headrace.errors import ConfigError, shown
from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES, Limits
from headrace.weights.store.resolve import resolve_model

_P = ParamSpec("_P")
_R = TypeVar("_R")

PORT = "{port}"
"""In a command, where the port belongs."""


class ComparisonOptions(NamedTuple):
    """A comparison that is asked for."""

    peer: str | Sequence[str]
    """The URL of a server that runs, or a command that starts one, with PORT in it."""
    own: Sequence[str]
    """The command that starts ours, likewise."""
    tokenizer: str | None
    """The checkpoint whose tokenizer makes the prompts: a path or a hub id; None: the model that
    ships."""
    peer_model: str | None
    """None for the one that it lists."""
    seed: int
    """Of the prompts, which are the same for both."""
    budget_s: float
    start_timeout_s: float
    request_timeout_s: float
    api_key: str | None


class Environment(NamedTuple):
    """The process and the machine around a comparison."""

    environ: Mapping[str, str]
    """Of servers that are started."""
    make_probe: Callable[[str, int], Probe]
    """By level and threads."""
    clock: Callable[[], float]
    now: Callable[[], datetime]
    progress: Callable[[str], None]


class Facts(NamedTuple):
    """Facts of both servers, with the seconds that those started here took until they answered."""

    ours: ServerFacts
    peer: ServerFacts
    ready_s: dict[str, float]


def peer_of(text: str) -> str | list[str]:
    """A URL, or the words of a command. Raises ConfigError for what is neither."""
    if "://" in text.partition(" ")[0]:
        split_url(text, "URL")
        return text.rstrip("/")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"COMMAND {shown(text)}: {error}; close its quotes") from error
    if not any(PORT in word for word in words):
        raise ConfigError(
            f"{shown(text)} is not a URL (http://HOST:PORT), and as a command it has no {PORT}: "
            "write it where the server's port belongs, such as --port {port}"
        )
    return words


_ADDRESS = ("--host", "--port", "--uds", "--ssl-keyfile", "--ssl-certfile")


def check_own_options(arguments: Sequence[str]) -> None:
    """Raises ConfigError for an option of `headrace serve` that moves it elsewhere."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in _ADDRESS:
            raise ConfigError(
                f"{name} behind --: headrace is started on a free port of 127.0.0.1 and measured "
                "there; leave it out"
            )


def compared(
    options: ComparisonOptions, cases: Sequence[AgainstCase], environment: Environment
) -> tuple[Facts, Comparison]:
    """Start what is to be started, measure in turns, and end it.

    Raises HeadraceError (its kinds) for a server that does not start or does not answer.
    """
    started_here: dict[str, StartedServer] = {}
    tokenization = load_tokenization(options.tokenizer)
    with ExitStack() as running:

        def endpoint_of(name: str, server: str | Sequence[str], model: str | None) -> Endpoint:
            url = server
            if not isinstance(url, str):
                environment.progress(f"starting {name}")
                called = "headrace serve" if name == "headrace" else None
                starting = _started(server, options, environment, called)
                url, started_here[name] = running.enter_context(starting)
            return asyncio.run(with_model(_endpoint(url, options.api_key), model))

        peer = endpoint_of("peer", options.peer, options.peer_model)
        ours = endpoint_of("headrace", options.own, None)
        peer_run, own_run = (
            Loads(
                endpoint,
                tokenization,
                seed=options.seed,
                request_timeout_s=options.request_timeout_s,
                now=environment.now,
            )
            for endpoint in (peer, ours)
        )
        ready_s = {name: server.ready_s for name, server in started_here.items()}
        facts = Facts(
            with_file(asyncio.run(server_facts(ours)), _file_of(options.tokenizer)),
            asyncio.run(server_facts(peer)),
            ready_s,
        )
        refused = too_long(cases, facts.peer.context)
        fitting = [case for case in cases if case.name not in refused]
        if fitting:
            least = min(fitting, key=lambda case: case.users * case.positions)
            for name, run in (("peer", peer_run), ("headrace", own_run)):
                environment.progress(f"warming up: {name}")
                if not _warmed_up(run, least):
                    environment.progress(f"{name}: no request of {least.name} succeeded")
        read_limits = limits_reader(asyncio.run(engine_labels(ours)), environment)
        ours_alone, peer_alone, limits_alone = with_others_stopped(
            own_run, peer_run, read_limits, started_here
        )
        comparison = in_turns(
            cases,
            ours_alone,
            peer_alone,
            read_limits=limits_alone if is_here(peer.base_url) else lambda: None,
            budget_s=options.budget_s,
            clock=environment.clock,
            progress=environment.progress,
            refused=refused,
        )
    return facts, comparison


def too_long(cases: Sequence[AgainstCase], context: int | None) -> dict[str, str]:
    """Of cases that do not fit into the peer's context of a request: the reason, by name."""
    return {
        case.name: (
            f"the peer holds {context:,} tokens a request, this case has {case.positions:,}; start "
            "it with a larger context (llama-server: -c, and -kvu with several slots)"
        )
        for case in cases
        if context is not None and case.positions > context
    }


def _file_of(model: str | None) -> Path:
    return embedded_model() if model is None else resolve_model(model)


def with_others_stopped(
    ours: Run,
    peer: Run,
    read_limits: Callable[[], Limits | None],
    started_here: Mapping[str, StartedServer],
) -> tuple[Run, Run, Callable[[], Limits | None]]:
    """The same, during which no other server runs of those that were started here, by their names
    `headrace` and `peer`; beside a reading of limits neither does."""
    return (
        _while_stopped(ours, started_here.get("peer")),
        _while_stopped(peer, started_here.get("headrace")),
        _while_stopped(read_limits, *started_here.values()),
    )


def _while_stopped(work: Callable[_P, _R], *others: StartedServer | None) -> Callable[_P, _R]:
    """`work`, during which those servers are stopped: threads that wait and spin take cores."""

    def alone(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with ExitStack() as stack:
            for other in others:
                if other is not None:
                    stack.enter_context(other.stopped())
            return work(*args, **kwargs)

    return alone


@contextmanager
def _started(
    command: Sequence[str], options: ComparisonOptions, environment: Environment, called: str | None
) -> Iterator[tuple[str, StartedServer]]:
    """A server while the block runs, and its address. called: its name in errors."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    endpoint = _endpoint(url, options.api_key)
    with started(
        [word.replace(PORT, str(port)) for word in command],
        is_ready=lambda: asyncio.run(is_ready(endpoint)),
        timeout_s=options.start_timeout_s,
        environ=environment.environ,
        name=called,
    ) as server:
        yield url, server


def _endpoint(url: str, api_key: str | None) -> Endpoint:
    return Endpoint(kind="openai-completions", base_url=url, model="", api_key=api_key)


def _warmed_up(run: Run, case: AgainstCase) -> bool:
    """Whether a first run, which counts for nothing, had an answer. Where it had none its case
    fails in turn, which names the reason, and others may not. Raises KeyboardInterrupt where the
    run was interrupted."""
    done = run(case)
    if done.ending == "interrupted":
        raise KeyboardInterrupt
    return done.summary.requests.completed > 0


def limits_reader(
    labels: Mapping[str, str], environment: Environment
) -> Callable[[], Limits | None]:
    """Reads the machine's limits at the level, with the threads and for the weights, K and V that
    our server has by its `engine_labels`; None of a server for which other kernels compute."""
    if labels["backend"] != "cpu":
        return lambda: None
    level, threads = labels["cpu_level"], int(labels["threads"])

    def read() -> Limits | None:
        measured = measure_machine(
            environment.make_probe,
            levels=[level],
            threads=[threads],
            footprints_bytes=[DRAM_FOOTPRINT_BYTES],
            repeats=1,
            now=environment.now(),
        )
        codecs = labels["weight_codec"], labels["cache_dtype"]
        return measured.machine.limits(level, threads, *codecs)

    return read
