"""Pages of other origins that may call the server from a browser (CORS); by default none.

Outermost of all, so that errors and refusals can be read by such pages too, and a browser's
question beforehand (preflight), which carries no key, is answered without one.
"""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from headrace.config.server_settings import ServerConfig
from headrace.server.headers import IGNORED_PARAMS, REQUEST_ID

DEFAULT_METHODS = ("GET", "POST", "OPTIONS")
EXPOSED = (REQUEST_ID, IGNORED_PARAMS, "retry-after")


def with_cors(app: ASGIApp, config: ServerConfig) -> ASGIApp:
    """`app`, open to the origins of the settings; `app` itself where there are none."""
    if not config.allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=config.allowed_origins,
        allow_methods=config.allowed_methods or DEFAULT_METHODS,
        allow_headers=config.allowed_headers or ("*",),
        allow_credentials=config.allow_credentials,
        expose_headers=EXPOSED,
    )
