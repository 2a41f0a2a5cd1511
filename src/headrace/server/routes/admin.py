"""What is below /admin: to see what the server does, and to end or reset parts of it.

Only calls with the admin key get here; `auth` sees to that.
"""

from __future__ import annotations

from starlette.responses import Response

from headrace.config.masked import masked
from headrace.server.api_error import ApiError
from headrace.server.call import Call
from headrace.server.replies.reply import json_reply
from headrace.server.service_messages import (
    CANCEL,
    Cancelled,
    EngineRestart,
    OpenRequests,
    PrefixCacheReset,
    Settings,
)


async def open_requests(call: Call) -> Response:
    """GET /admin/requests."""
    state = call.state
    return json_reply(OpenRequests(state.open_calls.facts(state.clock())))


async def cancel(call: Call) -> Response:
    """POST /admin/cancel: end a call by its id."""
    request_id = (await call.parse(CANCEL)).request_id
    count = call.state.open_calls.cancel(request_id)
    if not count:
        raise ApiError(
            404,
            f"no open request has the id {request_id[:128]!r}; GET /admin/requests lists them",
            param="request_id",
            code="not_found",
        )
    return json_reply(Cancelled(count))


async def reset_prefix_cache(call: Call) -> Response:
    """POST /admin/reset_prefix_cache."""
    blocks = await call.state.serving().model.engine.reset_prefix_cache()
    return json_reply(PrefixCacheReset(blocks))


async def restart_engine(call: Call) -> Response:
    """POST /admin/restart_engine: end the engine and what is open on it, start another."""
    engine = call.state.serving().model.engine
    await engine.restart("the server's administrator restarted the engine")
    status = engine.status
    wait_s = status.retry_after_s
    return json_reply(
        EngineRestart(
            status=status.state,
            restarts=status.restarts,
            retry_after_s=None if wait_s is None else round(wait_s, 3),
        )
    )


async def settings(call: Call) -> Response:
    """GET /admin/settings."""
    state = call.state
    engine = None if state.engine_config is None else masked(state.engine_config)
    return json_reply(Settings(masked(state.config), engine))
