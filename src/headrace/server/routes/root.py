"""GET / and /v1: what whoever opens the server's address sees, the URL that it prints at its start.

A browser gets the chat page, a program a line of text. Neither says anything about this server, so
neither needs a key.
"""

from __future__ import annotations

from starlette.responses import Response

from headrace.server.call import Call
from headrace.server.routes.pages import page

GREETING = "headrace is running. The API is at /v1."
WITH_DOCS = f"{GREETING} GET /docs describes it."
# Caches between here and a browser must not give one the other's reply.
_VARY = {"vary": "accept"}


async def greet(call: Call) -> Response:
    """The chat page for a browser, to which /v1 sends it, and a line of text for all else."""
    if not call.state.config.enable_docs:
        return _line(GREETING)
    if "text/html" not in call.http.headers.get("accept", ""):
        return _line(WITH_DOCS)
    path = call.http.scope["path"]
    if path == "/":
        reply = page(call, "chat")
        reply.headers.update(_VARY)
        return reply
    # Relative, so that it holds also where a proxy serves all of this below a path of its own.
    below = path.removeprefix("/").count("/")
    return Response(status_code=303, headers={"location": "../" * below or "./", **_VARY})


def _line(text: str) -> Response:
    return Response(f"{text}\n", media_type="text/plain", headers=_VARY)
