"""The admin API and page as one ASGI app."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import HeadraceError
from headrace.gateway.admin.call import Call, Shared
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.gatehouse import Gatehouse
from headrace.gateway.admin.guard import Guard
from headrace.gateway.admin.openapi import document
from headrace.gateway.admin.operations import OPERATIONS, Operation
from headrace.gateway.admin.page_files import page_routes
from headrace.gateway.admin.reply import error_reply, json_reply
from headrace.gateway.admin.tries import Tries
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.secret import Secret

logger = logging.getLogger(__name__)


def admin_app(
    house: Gatehouse,
    settings: AdminSettings,
    key: Secret | None,
    *,
    clock_s: Callable[[], float],
    wall_s: Callable[[], float],
    new_id: Callable[[], str],
    ending: asyncio.Event,
) -> ASGIApp:
    """The admin app. key: None where none is required. clock_s: of a monotonic clock, wall_s: Unix
    time. ending: when it is set, streams end."""
    shared = Shared(house=house, wall_s=wall_s, new_id=new_id, ending=ending)
    openapi = document(OPERATIONS, needs_key=key is not None)

    async def describe(request: Request) -> Response:
        return json_reply(openapi)

    routes = [Route(one.path, _Endpoint(one, shared), methods=[one.method]) for one in OPERATIONS]
    routes += [Route("/api/openapi.json", describe), *page_routes()]
    # A redirect would be built from the Host header.
    router = Router(routes, redirect_slashes=False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router
        try:
            await router(scope, receive, send)
        except HTTPException as failure:  # only the router raises it, before any reply
            refused = AdminError(404, "there is nothing at this path", "not_found")
            if failure.status_code == 405:
                refused = AdminError(
                    405, f"{scope['method']} is not supported at this path", "method_not_allowed"
                )
            await error_reply(refused)(scope, receive, send)

    return Guard(app, key, (settings.host, *settings.hosts), Tries(clock_s))


class _Endpoint:
    """An operation as an ASGI app."""

    def __init__(self, operation: Operation, shared: Shared) -> None:
        self._operation = operation
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(Request(scope, receive), self._shared)
        try:
            call.check_query(self._operation.query)
            reply = await self._operation.handler(call)
        except ClientDisconnect:
            return
        except AdminError as error:
            reply = error_reply(error)
        except HeadraceError as error:
            reply = error_reply(AdminError(409, str(error), "not_possible"))
        except Exception:
            # What went wrong is in the log alone: it may hold anything.
            logger.exception("%s %s failed", self._operation.method, self._operation.path)
            reply = error_reply(
                AdminError(500, "this failed; the gateway's log has the cause", "failed")
            )
        await reply(scope, receive, send)
