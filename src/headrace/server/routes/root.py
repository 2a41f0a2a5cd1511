"""GET / and /v1: what whoever opens the server's address sees, the URL that it prints at its start.

It says nothing about this server, so it needs no key.
"""

from __future__ import annotations

from starlette.responses import Response

from headrace.server.call import Call

GREETING = "headrace is running. The API is at /v1."
WITH_DOCS = f"{GREETING} GET /docs describes it."


async def greet(call: Call) -> Response:
    """A browser is sent to the page of /docs; everything else gets a line of text."""
    if not call.state.config.enable_docs:
        return _line(GREETING)
    if "text/html" not in call.http.headers.get("accept", ""):
        return _line(WITH_DOCS)
    # Relative, so that it holds also where a proxy serves all of this below a path of its own.
    below = call.http.scope["path"].removeprefix("/").count("/")
    return Response(status_code=303, headers={"location": "../" * below + "docs"})


def _line(text: str) -> Response:
    return Response(f"{text}\n", media_type="text/plain")
