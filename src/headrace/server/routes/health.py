"""GET /health and /metrics: for load balancers and Prometheus, without reading a body."""

from __future__ import annotations

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from headrace.protocol.openai.error import ErrorDetail
from headrace.server.api_error import ApiError, unavailable
from headrace.server.call import Call
from headrace.server.reply import json_reply


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """status: ok, loading, dead or stalled. With any but ok the reply is a 503 with an error.

    While loading, phase is what the engine does and progress the share of the weights it has.
    """

    status: str
    uptime_s: float
    phase: str | None = None
    progress: float | None = None
    error: ErrorDetail | None = None


async def health(call: Call) -> Response:
    """200 while the engine's loop runs and makes progress, 503 otherwise."""
    state = call.state
    uptime_s = round(state.uptime_s, 3)
    if not state.loaded:
        at, error = state.loading, unavailable("the model is loading", "loading")
        return _down("loading", uptime_s, error, phase=at.phase, progress=round(at.progress, 3))
    serving = state.serving()
    engine = serving.model.engine
    if not engine.status.alive:
        return _down("dead", uptime_s, unavailable("the engine has ended", "engine_dead"))
    steps = engine.stats.steps
    if not serving.pulse.beats(steps):
        silent_s = serving.pulse.silent_s(steps)
        message = f"the engine has been silent for {silent_s:.0f} s with requests open"
        return _down("stalled", uptime_s, unavailable(message, "engine_stalled"))
    return json_reply(Health(status="ok", uptime_s=uptime_s))


def _down(
    status: str,
    uptime_s: float,
    error: ApiError,
    *,
    phase: str | None = None,
    progress: float | None = None,
) -> Response:
    health = Health(
        status=status, uptime_s=uptime_s, phase=phase, progress=progress, error=error.detail
    )
    return json_reply(health, error.status)


async def metrics(call: Call) -> Response:
    """Every metric in Prometheus's text format."""
    return Response(
        generate_latest(call.state.registry), headers={"content-type": CONTENT_TYPE_LATEST}
    )
