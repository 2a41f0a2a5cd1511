"""The routes as one ASGI app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import shown
from headrace.http.headers import REQUEST_ID, request_id_from
from headrace.http.unknown_path import unknown_path
from headrace.server.api_error import ApiError
from headrace.server.auth import KeyGuard
from headrace.server.call import EndpointApp, Handler
from headrace.server.cors import with_cors
from headrace.server.dialects.dialect_paths import error_at
from headrace.server.observability.access_log import Observed, tell_refused
from headrace.server.routes import admin, ollama
from headrace.server.routes.apply_template import apply_template
from headrace.server.routes.chat import chat_completions
from headrace.server.routes.completions import completions
from headrace.server.routes.docs import docs, docs_file, openapi
from headrace.server.routes.health import health, load, metrics, ready, version
from headrace.server.routes.llamacpp import completion, infill
from headrace.server.routes.messages import count_message_tokens, messages
from headrace.server.routes.models import list_models, one_model
from headrace.server.routes.pages import chat_file
from headrace.server.routes.responses import count_input_tokens, create_response
from headrace.server.routes.root import greet
from headrace.server.routes.stored_responses import (
    cancel_response,
    delete_response,
    get_response,
    list_input_items,
)
from headrace.server.routes.tokenize import detokenize, tokenize_text
from headrace.server.state import ServerState

# Label of replies that are no endpoint's.
OTHER = "other"

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/v1/chat/completions", chat_completions),
    ("POST", "/v1/completions", completions),
    ("POST", "/v1/messages", messages),
    ("POST", "/v1/messages/count_tokens", count_message_tokens),
    ("POST", "/api/chat", ollama.ollama_chat),
    ("POST", "/api/generate", ollama.ollama_generate),
    ("GET", "/api/tags", ollama.ollama_tags),
    ("GET", "/api/ps", ollama.ollama_ps),
    ("POST", "/api/show", ollama.ollama_show),
    ("GET", "/api/version", ollama.ollama_version),
    *ollama.NOT_HERE,
    ("POST", "/v1/responses", create_response),
    ("POST", "/v1/responses/input_tokens", count_input_tokens),
    ("GET", "/v1/responses/{response_id}", get_response),
    ("DELETE", "/v1/responses/{response_id}", delete_response),
    ("GET", "/v1/responses/{response_id}/input_items", list_input_items),
    ("POST", "/v1/responses/{response_id}/cancel", cancel_response),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{model:path}", one_model),
    ("POST", "/completion", completion),
    ("POST", "/infill", infill),
    ("POST", "/tokenize", tokenize_text),
    ("POST", "/detokenize", detokenize),
    ("POST", "/apply-template", apply_template),
    ("GET", "/", greet),
    ("GET", "/page/{name:path}", chat_file),
    ("GET", "/health", health),
    ("GET", "/ready", ready),
    ("GET", "/load", load),
    ("GET", "/version", version),
    ("GET", "/metrics", metrics),
    ("GET", "/openapi.json", openapi),
    ("GET", "/docs", docs),
    ("GET", "/docs/{name}", docs_file),
    ("GET", "/admin/requests", admin.open_requests),
    ("POST", "/admin/cancel", admin.cancel),
    ("POST", "/admin/reset_prefix_cache", admin.reset_prefix_cache),
    ("POST", "/admin/restart_engine", admin.restart_engine),
    ("GET", "/admin/settings", admin.settings),
)

_OF_ANTHROPIC = "/v1/messages"

# Other paths of the same endpoints: base URLs without /v1 (Anthropic's are without it anyway), the
# URL that the server prints, and the health check of Amazon SageMaker and of balancers.
ALIASES: Mapping[str, str] = {
    **{
        path.removeprefix("/v1"): path
        for _, path, _ in ROUTES
        if path.startswith("/v1/") and not path.startswith(_OF_ANTHROPIC)
    },
    "/v1": "/",
    "/v1/": "/",
    "/ping": "/health",
}

# Paths of other APIs, by how they begin: `headrace gateway` speaks these for any server.
OTHER_APIS = (("/api/v1/", "OpenRouter's API"),)

# Paths that a 404 may suggest: those that are always there and have one name.
SUGGESTED = frozenset(
    path
    for _, path, _ in ROUTES
    if "{" not in path and not path.startswith(("/admin", "/docs", "/openapi", "/page"))
) - {"/"}


def build_app(state: ServerState) -> ASGIApp:
    """The app. It serves at once; what needs the model answers 503 until `state.set_model`."""

    def refusal(request: Request, failure: HTTPException) -> Response:
        """404 for unknown paths, 405 for known ones, in OpenAI's shape."""
        # Not request.url: that is made from the Host header.
        message = _nothing_at(request.scope["path"], docs=state.config.enable_docs)
        code = "not_found"
        if failure.status_code == 405:
            allowed = ", ".join(sorted(_methods(routes, request.scope)))
            path = shown(request.scope["path"])
            message = f"{request.method} {path} is not supported; allowed: {allowed}"
            code = "method_not_allowed"
        headers = dict(failure.headers or {})
        if failure.status_code == 405:
            headers["Allow"] = allowed
        request_id = request_id_from(request.headers.get(REQUEST_ID), state.new_id())
        state.http.answered(OTHER, failure.status_code)
        error = ApiError(failure.status_code, message, code=code)
        return error_at(request.scope["path"], error, request_id, headers)

    routes = []
    for method, path, handler in ROUTES:
        endpoint = Observed(path, EndpointApp(path, handler, state), state)
        routes.append(Route(path, endpoint, methods=[method]))
        routes += [
            Route(alias, endpoint, methods=[method], include_in_schema=False)
            for alias, meant in ALIASES.items()
            if meant == path
        ]
    # A redirect would be built from the Host header, and clients drop the body on the way.
    router = Router(routes, redirect_slashes=False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """The router alone: Starlette's application wraps every event's way in two more calls."""
        scope["app"] = router
        try:
            await router(scope, receive, send)
        except HTTPException as failure:  # only the router raises it, before any reply
            await refusal(Request(scope), failure)(scope, receive, send)

    def refused(scope: Scope, status: int, request_id: str) -> None:
        state.http.answered(OTHER, status)
        path = ALIASES.get(scope["path"], scope["path"])
        endpoint = path if path in paths else OTHER
        tell_refused(state, endpoint, status, request_id)

    paths = {path for _, path, _ in ROUTES}
    guarded = KeyGuard(
        app,
        state.config,
        new_id=state.new_id,
        refused=refused,
    )
    return with_cors(guarded, state.config, state.new_id)


def _methods(routes: Iterable[Route], scope: Scope) -> set[str]:
    """The methods of all routes of a path; a route that has its very name goes before one that
    takes it for an id."""
    of_path = [route for route in routes if route.matches(scope)[0] is not Match.NONE]
    named = [route for route in of_path if route.path == scope["path"]]
    return {method for route in named or of_path for method in route.methods or ()}


def _nothing_at(path: str, *, docs: bool) -> str:
    """The message of a 404: what speaks an API that this server does not, or a near path."""
    for beginning, api in OTHER_APIS:
        if path == beginning or path.startswith(beginning.rstrip("/") + "/"):
            return f"{shown(path)} does not exist here; `headrace gateway` in front speaks {api}"
    return unknown_path(path, SUGGESTED, docs=docs)
