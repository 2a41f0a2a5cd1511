"""Headers the server adds: request ids, ignored parameters, and those of an event stream."""

from __future__ import annotations

import re
from collections.abc import Sequence

REQUEST_ID = "x-request-id"
IGNORED_PARAMS = "X-Ignored-Params"

# no-cache and no-buffering: events have to reach the client one by one, also through nginx.
EVENT_STREAM = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

# Names come from clients: long or odd ones must not make a header that proxies reject.
MAX_NAME_CHARS = 64
MAX_VALUE_CHARS = 1024

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_ODD = re.compile(r"[^A-Za-z0-9_.\[\]-]")


def request_id_from(given: str | None, made: str) -> str:
    """The client's id, if it is fit to be echoed (1 to 128 visible ASCII characters), or `made`."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else made


def ignored_params(names: Sequence[str]) -> str:
    """Names, sorted, comma separated; odd characters become "?", a cut list ends in "..."."""
    clean = sorted({_ODD.sub("?", name)[:MAX_NAME_CHARS] or "?" for name in names})
    value = ",".join(clean)
    if len(value) <= MAX_VALUE_CHARS:
        return value
    return value[:MAX_VALUE_CHARS].rpartition(",")[0] + ",..."
