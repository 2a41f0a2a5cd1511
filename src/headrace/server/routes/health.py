"""GET /health, /ready, /load, /version and /metrics: for load balancers, people and Prometheus.

/health is the liveness of the engine's loop: 200 only while it turns. /ready is whether new
requests are taken: not while the server ends, though the engine is well.
"""

from __future__ import annotations

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from headrace import __version__
from headrace.server.api_error import (
    ApiError,
    engine_trouble,
    model_is_loading,
    server_is_ending,
)
from headrace.server.call import Call
from headrace.server.replies.reply import json_reply
from headrace.server.service_messages import Health, Load, Version


async def health(call: Call) -> Response:
    """200 while the engine's loop turns, 503 otherwise."""
    return _reply(call, "ok", None)


async def ready(call: Call) -> Response:
    """200 while new requests are taken, 503 otherwise."""
    return _reply(call, "ready", server_is_ending() if call.state.drain.begun else None)


async def load(call: Call) -> Response:
    """How many requests for generation are open."""
    return json_reply(Load(call.state.drain.num_open))


async def version(_call: Call) -> Response:
    """What runs here."""
    return json_reply(Version(__version__))


def _reply(call: Call, good: str, refusal: ApiError | None) -> Response:
    """`good`, or why not: the engine's trouble first, then `refusal`."""
    state = call.state
    uptime_s = round(state.uptime_s, 3)
    if not state.loaded:
        facts = Health(
            status="loading",
            uptime_s=uptime_s,
            phase=state.loading.phase,
            progress=round(state.loading.progress, 3),
        )
        return _down(facts, model_is_loading())
    engine = state.serving().model.engine.status
    failure = engine_trouble(engine) or refusal
    well = good if refusal is None else "draining"
    facts = Health(
        status=well if engine.alive else _WORDS[engine.state],
        uptime_s=uptime_s,
        restarts=engine.restarts,
        failure=engine.failure,
        silent_s=round(engine.silent_s, 3),
        retry_after_s=None if engine.retry_after_s is None else round(engine.retry_after_s, 3),
    )
    return json_reply(facts) if failure is None else _down(facts, failure)


_WORDS = {"stalled": "stalled", "restarting": "restarting", "failed": "dead"}


def _down(facts: Health, error: ApiError) -> Response:
    whole = msgspec.structs.replace(facts, error=error.detail)
    return json_reply(whole, error.status, error.headers)


async def metrics(call: Call) -> Response:
    """Every metric in Prometheus's text format."""
    return Response(
        generate_latest(call.state.registry), headers={"content-type": CONTENT_TYPE_LATEST}
    )
