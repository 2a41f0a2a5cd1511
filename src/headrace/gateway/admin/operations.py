"""The operations of the admin API by path: routes and the OpenAPI document are made from this
table, so that everything that is served is documented."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from starlette.responses import Response

from headrace.gateway.admin import key_changes as changes
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.config import About, Config, about, config, reload
from headrace.gateway.admin.gatehouse import Explained, Reloaded
from headrace.gateway.admin.keys import Keys, keys
from headrace.gateway.admin.log import LiveLine, LogDetail, LogPage, log, log_detail, log_stream
from headrace.gateway.admin.overview import Overview, overview
from headrace.gateway.admin.playground import TryEvent, TryWanted, try_models
from headrace.gateway.admin.routes import (
    BreakerSet,
    BreakerWanted,
    ExplainWanted,
    Routes,
    explain,
    routes,
    set_breaker,
)
from headrace.gateway.admin.usage import UsageReport, usage
from headrace.gateway.ledger.usage import GROUPINGS

Struct = type[msgspec.Struct]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of the admin API."""

    method: str
    path: str
    name: str
    """Its id in the OpenAPI document."""
    summary: str
    handler: Callable[[Call], Awaitable[Response]]
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the query, with their meaning."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the path, with their meaning."""
    body: Struct | None = None
    """The request's body."""
    reply: Struct | None = None
    """The reply's body, as JSON."""
    events: Struct | None = None
    """The type of each event of a stream, instead of a reply."""


_TIME = {
    "since": "From this time on: 2026-11-01, 2026-11-01T10:00Z, or seconds since 1970.",
    "until": "Up to this time; a day is included.",
}
_FILTERS = {
    "model": "Only this model, by the name clients use.",
    "key": "Only the key with this id.",
    "outcome": "Only this outcome: answered, cut, client_gone, failed or refused.",
    "text": "Only requests with these words in their names or failures.",
}
_KEY = {"id": "The key's id, which is not secret."}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET", path="/api/about", name="about", handler=about, reply=About,
        summary="What is running and which data can be viewed.",
    ),
    Operation(
        method="GET", path="/api/overview", name="overview", handler=overview, reply=Overview,
        summary="Requests, errors, tokens, cost and times: totals and a time series.",
        query={**_TIME, "by": "Length of each interval: minute, hour or day. Default: hour."},
    ),
    Operation(
        method="GET", path="/api/usage", name="usage", handler=usage, reply=UsageReport,
        summary="Usage by group, as `headrace gateway usage` shows it.",
        query={
            "by": f"What to group by, separated by commas: {', '.join(GROUPINGS)}.",
            **_TIME,
            "format": "json, or csv for spreadsheets. Default: json.",
        },
    ),
    Operation(
        method="GET", path="/api/log", name="log", handler=log, reply=LogPage,
        summary="Finished requests, newest first, a page at a time.",
        query={
            **_FILTERS,
            "in": "Where to look for `text`: names, or bodies of the request log. Default: names.",
            "limit": "How many at most, up to 500. Default: 50.",
            "cursor": "Continue from the page that returned this cursor.",
        },
    ),
    Operation(
        method="GET", path="/api/log/stream", name="logStream", handler=log_stream,
        events=LiveLine, query=_FILTERS,
        summary="Requests as they finish. A reader that is too slow loses lines and gets their "
            "number.",
    ),
    Operation(
        method="GET", path="/api/log/{id:path}", name="logDetail", handler=log_detail,
        reply=LogDetail, places={"id": "The request's id, from its `x-request-id`."},
        query={"at_s": "Unix time of its arrival, which finds it faster in a large ledger."},
        summary="One request with each target that was tried, and its bodies if they are kept.",
    ),
    Operation(
        method="GET", path="/api/keys", name="keys", handler=keys, reply=Keys,
        summary="Keys and the groups above them, with their budgets, usage and reservations.",
        query={
            "text": "Only keys with this text in their id, label or group.",
            "limit": "How many keys at most, up to 5,000. Default: 500.",
        },
    ),
    Operation(
        method="POST", path="/api/keys", name="createKey", handler=changes.create_key,
        body=changes.KeyWanted, reply=changes.KeyMade,
        summary="Make a key, which is shown only this once.",
    ),
    Operation(
        method="PATCH", path="/api/keys/{id}", name="editKey", places=_KEY,
        handler=changes.edit_key, body=changes.KeyEdited, reply=changes.KeyChanged,
        summary="Change a key's label, expiry or settings; its secret stays.",
    ),
    Operation(
        method="POST", path="/api/keys/{id}/rotate", name="rotateKey", places=_KEY,
        handler=changes.rotate_key, body=changes.RotateWanted, reply=changes.KeyMade,
        summary="Make another secret for the same key id; what was spent stays with it.",
    ),
    Operation(
        method="POST", path="/api/keys/{id}/block", name="blockKey", places=_KEY,
        handler=changes.block_key, reply=changes.KeyChanged,
        summary="Refuse every request with this key.",
    ),
    Operation(
        method="POST", path="/api/keys/{id}/unblock", name="unblockKey", places=_KEY,
        handler=changes.unblock_key, reply=changes.KeyChanged,
        summary="Serve requests with this key again.",
    ),
    Operation(
        method="DELETE", path="/api/keys/{id}", name="deleteKey", places=_KEY,
        handler=changes.delete_key, reply=changes.KeyChanged,
        summary="Remove a key for good; what was spent with it stays in the ledger.",
    ),
    Operation(
        method="GET", path="/api/routes", name="routes", handler=routes, reply=Routes,
        summary="Models with their targets, prices and current state.",
    ),
    Operation(
        method="POST", path="/api/explain", name="explain", handler=explain,
        body=ExplainWanted, reply=Explained,
        summary="Which targets would be tried for a request now, in which order and why. Sends "
            "nothing.",
    ),
    Operation(
        method="POST", path="/api/targets/{name:path}/breaker", name="setBreaker",
        handler=set_breaker, body=BreakerWanted, reply=BreakerSet,
        places={"name": "The target, as `provider/model`."},
        summary="Take a target out by hand until the file is reloaded, or put it back.",
    ),
    Operation(
        method="GET", path="/api/config", name="config", handler=config, reply=Config,
        summary="The settings in force, without secrets.",
    ),
    Operation(
        method="POST", path="/api/reload", name="reload", handler=reload, reply=Reloaded,
        summary="Reload the file; 409 with what is wrong with it, and then nothing changes.",
    ),
    Operation(
        method="POST", path="/api/try", name="tryModels", handler=try_models, body=TryWanted,
        events=TryEvent,
        summary="Send the same messages to several models side by side, charged to the "
            "administrator.",
    ),
)  # fmt: skip
