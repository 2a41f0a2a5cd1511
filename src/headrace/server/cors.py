"""Pages of other origins that may call the server from a browser (CORS); by default none.

Outermost of all, so that errors and refusals can be read by such pages too, and a browser's
question beforehand (preflight), which carries no key, is answered without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from headrace.config.server_settings import ServerConfig
from headrace.http.headers import IGNORED_PARAMS, REQUEST_ID, request_id_from
from headrace.server.api_error import ApiError
from headrace.server.replies.reply import error_reply

DEFAULT_METHODS = ("GET", "POST", "OPTIONS")
EXPOSED = (REQUEST_ID, IGNORED_PARAMS, "retry-after")

# What the middleware says of itself; its other headers go on.
_OF_THE_BODY = ("content-length", "content-type")


class _Cors(CORSMiddleware):
    """Starlette's, whose refusals are errors as those of all others, with a request id."""

    def __init__(self, app: ASGIApp, *, new_id: Callable[[], str], **settings: Any) -> None:
        super().__init__(app, **settings)
        self._new_id = new_id

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser's question."""
        answer = super().preflight_response(request_headers)
        request_id = request_id_from(request_headers.get(REQUEST_ID), self._new_id())
        if answer.status_code < 400:
            answer.headers[REQUEST_ID] = request_id
            return answer
        kept = {name: value for name, value in answer.headers.items() if name not in _OF_THE_BODY}
        message = (
            f"{bytes(answer.body).decode()}; see --allowed-origins, --allowed-methods and "
            "--allowed-headers of the server"
        )
        refusal = ApiError(400, message, code="cors_refused")
        return error_reply(refusal, {**kept, REQUEST_ID: request_id})


def with_cors(app: ASGIApp, config: ServerConfig, new_id: Callable[[], str]) -> ASGIApp:
    """`app`, open to the origins of the settings; `app` itself where there are none."""
    if not config.allowed_origins:
        return app
    return _Cors(
        app,
        new_id=new_id,
        allow_origins=config.allowed_origins,
        allow_methods=config.allowed_methods or DEFAULT_METHODS,
        allow_headers=config.allowed_headers or ("*",),
        allow_credentials=config.allow_credentials,
        expose_headers=EXPOSED,
    )
