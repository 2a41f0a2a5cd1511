"""`headrace serve`: an engine process, the HTTP server in front of it, and their common end.

The engine starts first and loads weights while this process imports the HTTP side and loads the
tokenizer. The server listens at once and answers 503 until the model is there. The first SIGINT or
SIGTERM lets open requests go on for a moment, the second ends them; then the engine ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig
from headrace.errors import HeadraceError
from headrace.server.listen import listen, url_of
from headrace.server.loading_line import LoadingLine

if TYPE_CHECKING:
    from headrace.engine.client import EngineClient
    from headrace.engine.messages import Loading
    from headrace.server.http import HttpServer
    from headrace.server.load import TextSide
    from headrace.server.state import ServerState

logger = logging.getLogger(__name__)

# How long open requests may go on after the first signal.
GRACE_S = 5
# After the engine has ended, streams need only a moment to say so.
LAST_WORDS_S = 2
# How often the engine is looked at, to say in the log that it has ended.
LOOK_EVERY_S = 1.0
# 128 + SIGINT: what shells say of a process that Ctrl-C ended.
INTERRUPTED = 130


def serve(
    engine_config: EngineConfig, server_config: ServerConfig, *, as_json: bool = False
) -> int:
    """Serve until a signal comes; the exit code is 0 then, or 130 for a SIGINT in the first moment.

    Prints one line once the model can be used: for people, or as JSON. Raises HeadraceError when
    the model cannot be loaded or the address cannot be listened on.
    """
    try:
        _run(engine_config, server_config, as_json)
    except KeyboardInterrupt:  # before the loop took the signal over
        return INTERRUPTED
    return 0


def _run(engine_config: EngineConfig, server_config: ServerConfig, as_json: bool) -> None:
    started_s = time.perf_counter()
    logging.basicConfig(
        level=server_config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # What loading a model warns of (a tokenizer without a known rule) belongs in the log.
    logging.captureWarnings(True)
    # uvicorn's own notes (started, waiting for connections) say what ours say.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with listen(server_config.host, server_config.port) as sock:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(engine_config, server_config, sock, started_s, as_json))


class _Signals(NamedTuple):
    """stop is set by the first signal, hurry by the second."""

    stop: asyncio.Event
    hurry: asyncio.Event


async def _serve(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    sock: socket.socket,
    started_s: float,
    as_json: bool,
) -> None:
    with _signals() as signals:
        from headrace.engine.client import EngineClient

        progress = _Progress(LoadingLine(sys.stderr))
        engine_task = asyncio.ensure_future(
            EngineClient.start(engine_config, on_loading=progress.tell)
        )
        await asyncio.sleep(0)  # the process is spawned before the imports below
        from headrace.server.app import build_app
        from headrace.server.http import HttpServer
        from headrace.server.state import ServerState

        imported_s = time.perf_counter()
        state = progress.state = ServerState()
        http = HttpServer(build_app(state), sock, grace_s=GRACE_S)
        text_task = asyncio.ensure_future(
            asyncio.to_thread(_load_text, engine_config, server_config)
        )
        try:
            http.start()
            ready = asyncio.gather(engine_task, text_task)
            if await _done_before(ready, signals.stop):
                engine, text = ready.result()
                progress.line.wipe()
                _set_model(state, engine, text, engine_config)
                times = _Times(
                    ready_s=time.perf_counter() - started_s,
                    engine_phases_s=engine.info.phases_s,
                    server_phases_s={"import": imported_s - started_s, **text.phases_s},
                )
                _announce(state, url_of(sock), times, as_json)
                state.workers.submit(_compile_template, text)
                await _until_stopped(engine, signals.stop)
        finally:
            progress.line.wipe()
            http.stop()
            await _wait_for_requests(http, signals.hurry)
            await _end(engine_task, text_task)
            if not await http.ended(LAST_WORDS_S):
                http.cut()
            await http.ended()
            state.close()


@dataclass
class _Progress:
    """Hears how far the engine is, from before there is a state until it is ready."""

    line: LoadingLine
    state: ServerState | None = None

    def tell(self, at: Loading) -> None:
        self.line.show(at)
        if self.state is not None:
            self.state.loading = at


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals(asyncio.Event(), asyncio.Event())

    def note() -> None:
        (signals.hurry if signals.stop.is_set() else signals.stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, note)
    try:
        yield signals
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _load_text(engine_config: EngineConfig, server_config: ServerConfig) -> TextSide:
    from headrace.server.load import load_text

    return load_text(engine_config, server_config)


def _compile_template(text: TextSide) -> None:
    """Spare the first conversation the import and compilation; say early what cannot be used."""
    if text.template is None:
        return
    try:
        text.template.compile()
    except HeadraceError as error:
        logger.warning("conversations will be refused: %s", error)


async def _done_before(work: asyncio.Future[Any], stop: asyncio.Event) -> bool:
    """Whether `work` was done before the signal, which cancels it; its failure is left in it."""
    signalled = asyncio.ensure_future(stop.wait())
    both: set[asyncio.Future[Any]] = {work, signalled}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        signalled.cancel()
    done = work.done()
    if not done:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return done


def _set_model(
    state: ServerState, engine: EngineClient, text: TextSide, config: EngineConfig
) -> None:
    from headrace.server.load import fingerprint
    from headrace.server.served import ServedModel

    model = ServedModel(
        names=text.names,
        root=text.root,
        engine=engine,
        tokenizer=text.tokenizer,
        template=text.template,
        template_defaults=text.template_defaults,
        trust_request_template=text.trust_request_template,
        fingerprint=fingerprint(text.weights_digest, engine.info),
        created_s=int(state.wall_clock()),
        max_logprobs=config.max_logprobs,
    )
    state.set_model(model, prefix_caching=config.enable_prefix_caching)


class _Times(NamedTuple):
    """Seconds from the call of `serve`, and of phases of engine and server, which run side by side.

    The engine's begin with its process ("spawn"), the server's with the call.
    """

    ready_s: float
    engine_phases_s: dict[str, float]
    server_phases_s: dict[str, float]


class _Announcement(msgspec.Struct, frozen=True):
    """What `--json` prints. url has no path; phases_s are the engine's; times as in _Times."""

    url: str
    model: str
    ready_s: float
    max_model_len: int
    phases_s: dict[str, float]
    server_phases_s: dict[str, float]


def _announce(state: ServerState, url: str, times: _Times, as_json: bool) -> None:
    model = state.serving().model
    logger.debug(
        "ready in %.2f s; engine: %s; server: %s",
        times.ready_s,
        _listed(times.engine_phases_s),
        _listed(times.server_phases_s),
    )
    if as_json:
        facts = _Announcement(
            url,
            model.name,
            round(times.ready_s, 4),
            model.limits.context_tokens,
            times.engine_phases_s,
            times.server_phases_s,
        )
        line = msgspec.json.encode(facts).decode()
    else:
        line = f"headrace serves {model.name} at {url}/v1 (ready in {times.ready_s:.2f} s)"
    _print(line)


def _print(line: str) -> None:
    """Write to stdout; a server goes on where nobody takes what it prints."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as error:  # absent; full or broken; closed
        logger.warning("cannot write to stdout (%s): %s", error, line)
        _silence_stdout()


def _silence_stdout() -> None:
    """Lead stdout nowhere: what waits in its buffer would fail again when Python ends."""
    with suppress(AttributeError, OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _listed(phases_s: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.3f} s" for name, seconds in phases_s.items())


async def _until_stopped(engine: EngineClient, stop: asyncio.Event) -> None:
    """Return at the signal. An engine that ends is logged; the server says 503 from then on."""
    known_dead = False
    while not stop.is_set():
        if not known_dead and not engine.alive:
            known_dead = True
            logger.critical("the engine has ended; every request is answered with 503 from now on")
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)
        except TimeoutError:
            continue


async def _wait_for_requests(http: HttpServer, hurry: asyncio.Event) -> None:
    """Let open requests end by themselves, for the grace, or until a second signal."""
    ended = asyncio.ensure_future(http.ended(GRACE_S))
    hurried = asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait({ended, hurried}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hurried.cancel()
        ended.cancel()


async def _end(engine_task: asyncio.Future[EngineClient], text_task: asyncio.Future[Any]) -> None:
    """End the engine, whether it is there or still loading. Failures were raised before."""
    engine_task.cancel()
    text_task.cancel()
    await asyncio.gather(engine_task, text_task, return_exceptions=True)
    if not engine_task.cancelled() and engine_task.exception() is None:
        await engine_task.result().close()
