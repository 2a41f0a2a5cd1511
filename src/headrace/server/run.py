"""`headrace serve`: an engine process, the HTTP server in front of it, and their common end.

The engine starts first (its process was launched before the command was read) and loads weights
while this process imports the HTTP side and loads the tokenizer. The server listens at once and
answers 503 until the model is there. At the first SIGINT or SIGTERM what was accepted is answered,
then everything ends (server/lifecycle/ending.py).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig
from headrace.errors import HeadraceError
from headrace.http.event_loop import run_in_loop
from headrace.http.file_limit import raise_file_limit
from headrace.http.listen import Listener
from headrace.http.signals import signals
from headrace.http.tls import tls_context
from headrace.server.lifecycle.announce import Times, announce, warn_of_strangers
from headrace.server.lifecycle.ending import finish_accepted
from headrace.server.lifecycle.loading_line import LoadingLine
from headrace.server.observability.tracing import require_tracing
from headrace.telemetry.logs import configure_logging

if TYPE_CHECKING:
    import ssl

    from headrace.engine.messages import Loading
    from headrace.engine.process.client import EngineClient
    from headrace.engine.process.spawn import EngineProcess
    from headrace.engine.process.supervisor import SupervisedEngine
    from headrace.engine.process.supervisor_events import Event
    from headrace.http.server import HttpServer
    from headrace.server.lifecycle.load import TextSide
    from headrace.server.responses_store.store import ResponsesStore
    from headrace.server.state import ServerState

logger = logging.getLogger(__name__)

# After the engine has ended, streams need only a moment to say so.
LAST_WORDS_S = 2
# 128 + SIGINT: what shells say of a process that Ctrl-C ended.
INTERRUPTED = 130


def serve(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    *,
    as_json: bool = False,
    process: EngineProcess | None = None,
) -> int:
    """Serve until a signal comes; the exit code is 0 then, or 130 for a SIGINT in the first moment.

    process: that of the first engine, where it was launched before; it has ended afterwards.
    Prints one line once the model can be used: for people, or as JSON. Raises HeadraceError when
    the model cannot be loaded or the address cannot be listened on.
    """
    try:
        _run(engine_config, server_config, as_json, process)
    except KeyboardInterrupt:  # before the loop took the signal over
        return INTERRUPTED
    finally:
        if process is not None:
            process.abandon()
    return 0


def _run(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    as_json: bool,
    process: EngineProcess | None,
) -> None:
    started_s = time.perf_counter()
    configure_logging(server_config.log_level, server_config.log_format, sys.stderr)
    require_tracing(server_config.otlp_traces_endpoint)
    # What loading a model warns of (a tokenizer without a known rule) belongs in the log.
    logging.captureWarnings(True)
    # uvicorn's own notes (started, waiting for connections) say what ours say.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    tls = tls_context(server_config)
    room = raise_file_limit(server_config.max_connections)
    server_config = msgspec.structs.replace(server_config, max_connections=room)
    with Listener(server_config) as listener:
        warn_of_strangers(server_config)
        run_in_loop(
            _serve(engine_config, server_config, listener, tls, started_s, as_json, process)
        )


async def _serve(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    listener: Listener,
    tls: ssl.SSLContext | None,
    started_s: float,
    as_json: bool,
    process: EngineProcess | None,
) -> None:
    with signals() as heard:
        from headrace.server.admission.heap import trim_heap
        from headrace.server.responses_store.store import ResponsesStore

        # Before anything is started that would have to be ended: a file may be damaged.
        store = ResponsesStore(server_config, time.time)
        logger.info("loading %s", engine_config.model or "the embedded model")
        progress = _Progress(LoadingLine(sys.stderr), populates=engine_config.populate_kv_cache)
        engine_task = await _spawned_engine(engine_config, server_config, progress, process)
        side = _http_side(engine_config, server_config, listener, tls, store)
        state = progress.state = side.state
        text_task = asyncio.ensure_future(
            asyncio.to_thread(_load_text, engine_config, server_config)
        )
        status_task: asyncio.Future[None] | None = None
        try:
            side.http.start()
            ready = asyncio.gather(engine_task, text_task)
            if await _done_before(ready, heard.stop):
                engine, text = ready.result()
                progress.line.wipe()
                _set_model(state, engine, text, engine_config)
                times = Times(
                    ready_s=time.perf_counter() - started_s,
                    engine_phases_s=engine.info.phases_s,
                    server_phases_s={"import": side.imported_s - started_s, **text.phases_s},
                )
                announce(state, listener.url, times, as_json)
                # What is loaded stays: collections need not look at it, 10 ms of silence each.
                gc.freeze()
                state.workers.submit(_compile_template, text)
                state.workers.submit(trim_heap)
                status_task = asyncio.ensure_future(side.tell_status())
                await heard.stop.wait()
                await finish_accepted(
                    state.drain,
                    side.http,
                    heard.hurry,
                    progress.line,
                    timeout_s=server_config.shutdown_timeout,
                    slow_client_s=server_config.slow_client_timeout,
                )
        finally:
            progress.line.wipe()
            state.drain.begin()
            if status_task is not None:
                status_task.cancel()
            side.http.stop()
            await _end(engine_task, text_task)
            await _end_http(side.http)
            state.close()


@dataclass
class _Progress:
    """A listener to the engine's progress, from before there is a state until it is ready."""

    line: LoadingLine
    populates: bool = False
    """Whether the KV cache is still to be populated and the log to say so."""
    state: ServerState | None = None

    def happened(self, event: Event) -> None:
        """What befell the engine after it was ready."""
        if self.state is not None:
            self.state.engine_event(event)

    def tell(self, at: Loading) -> None:
        if self.populates and at.phase == "kv_cache":
            self.populates = False
            self.line.wipe()
            logger.info("populating the KV cache: all of its memory is touched first")
        self.line.show(at)
        if self.state is not None:
            self.state.loading = at


async def _spawned_engine(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    progress: _Progress,
    process: EngineProcess | None,
) -> asyncio.Future[SupervisedEngine]:
    """The start of an engine, the process of which is there."""
    from headrace.engine.process.client import EngineClient
    from headrace.engine.process.supervisor import SupervisedEngine
    from headrace.engine.process.supervisor_events import Supervision

    launched = iter(() if process is None else (process,))

    async def launch(
        config: EngineConfig, *, on_loading: Callable[[Loading], None] | None = None
    ) -> EngineClient:
        process = next(launched, None)
        return await EngineClient.start(config, on_loading=on_loading, process=process)

    supervision = Supervision(
        max_restarts=server_config.max_engine_restarts,
        stall_timeout_s=server_config.engine_stall_timeout,
        on_event=progress.happened,
        launch=launch,
    )
    task = asyncio.ensure_future(
        SupervisedEngine.start(engine_config, supervision, on_loading=progress.tell)
    )
    await asyncio.sleep(0)  # the task runs,
    await asyncio.sleep(0)  # and the process is spawned before what is imported next
    return task


@dataclass(frozen=True)
class _HttpSide:
    """The server and its state, before it listens."""

    state: ServerState
    http: HttpServer
    tell_status: Callable[[], Coroutine[Any, Any, None]]
    """Runs as long as the server does."""
    imported_s: float
    """When all of its modules were there, by `time.perf_counter`."""


def _http_side(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    listener: Listener,
    tls: ssl.SSLContext | None,
    store: ResponsesStore,
) -> _HttpSide:
    from headrace.http.client_limits import ClientLimits
    from headrace.http.server import HttpServer
    from headrace.server.app import build_app
    from headrace.server.observability.status_line import tell_status
    from headrace.server.state import ServerState

    imported_s = time.perf_counter()
    state = ServerState(
        config=server_config,
        max_num_seqs=engine_config.max_num_seqs,
        engine_config=engine_config,
        opened_store=store,
    )
    http = HttpServer(
        build_app(state),
        listener.socket,
        grace_s=LAST_WORDS_S,
        limits=ClientLimits.of(server_config),
        hosts=listener.hosts,
        tls=tls,
        on_refused=lambda status: state.http.answered("other", status),
    )
    return _HttpSide(state, http, lambda: tell_status(state), imported_s)


def _load_text(engine_config: EngineConfig, server_config: ServerConfig) -> TextSide:
    from headrace.server.lifecycle.load import load_text

    try:
        return load_text(engine_config, server_config)
    finally:
        gc.freeze()
        gc.enable()  # it is off while there is nothing to collect


def _compile_template(text: TextSide) -> None:
    """Spare the first conversation the import and compilation; say early what cannot be used."""
    if text.template is None:
        return
    try:
        text.template.compile()
    except HeadraceError as error:
        logger.warning("chat requests will be refused: %s", error)


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
    state: ServerState, engine: SupervisedEngine, text: TextSide, config: EngineConfig
) -> None:
    from headrace.server.lifecycle.load import fingerprint
    from headrace.server.model.served import ServedModel

    model = ServedModel(
        names=text.names,
        root=text.root,
        file_format=text.file_format,
        file_type=text.file_type,
        num_parameters=text.num_parameters,
        engine=engine,
        tokenizer=text.tokenizer,
        template=text.template,
        template_defaults=text.template_defaults,
        trust_request_template=text.trust_request_template,
        excludes_unused_tools=text.excludes_unused_tools,
        left_out=text.left_out,
        answer_format=text.answer_format,
        sampling_defaults=text.sampling_defaults,
        fingerprint=fingerprint(text.weights_digest, engine.info, text.sampling_defaults),
        created_s=int(state.wall_clock()),
        max_logprobs=config.max_logprobs,
    )
    state.set_model(model, prefix_caching=config.enable_prefix_caching)


async def _end(
    engine_task: asyncio.Future[SupervisedEngine], text_task: asyncio.Future[Any]
) -> None:
    """End the engine, whether it is there or still loading. Failures were raised before."""
    engine_task.cancel()
    text_task.cancel()
    await asyncio.gather(engine_task, text_task, return_exceptions=True)
    if not engine_task.cancelled() and engine_task.exception() is None:
        await engine_task.result().close()


async def _end_http(http: HttpServer) -> None:
    """Wait for the last words of streams, and for no more."""
    if not await http.ended(LAST_WORDS_S):
        http.cut()
    await http.ended()
