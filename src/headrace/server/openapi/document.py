"""The OpenAPI 3.1 document of a server, made from its routes and the structs of their bodies.

Made at the first request for it: nothing here is imported before, so that it costs a start nothing.
Knows the shape of a document; what a route is for says `operations`, what bodies look like
`schemas`; `responses` and `dialects` say both of other APIs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace import __version__
from headrace.http.headers import IGNORED_PARAMS, REQUEST_ID
from headrace.protocol.openai.error import ErrorBody
from headrace.server.openapi.dialects import DIALECT_OPERATIONS, DIALECT_SCHEMAS
from headrace.server.openapi.operations import (
    EVENTS,
    JSON,
    OPERATIONS,
    Operation,
    Reply,
    in_dialect,
)
from headrace.server.openapi.responses import RESPONSES_OPERATIONS, RESPONSES_SCHEMAS
from headrace.server.openapi.schemas import REF, Schema, reply_schemas, request_schemas

OPENAPI = "3.1.0"
RETRY_AFTER = "Retry-After"

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_ABOUT = """\
An OpenAI-compatible server over one model. A request gets what it asks for, or an error that says
what is wrong: fields are honoured; or known and refused with any value but a harmless one or a
hint; or unknown. Hints and unknown fields are accepted and named in `X-Ignored-Params`. `null`
is the same as omitting a field.
Every failure has the body `{"error": {"message", "type", "param", "code"}}`, but on paths of other
vendors' APIs: there it is as their clients read it."""

ALL_OPERATIONS = {**OPERATIONS, **RESPONSES_OPERATIONS, **DIALECT_OPERATIONS}
"""What each route does, by method and path."""

_NAMED_SCHEMAS = {**RESPONSES_SCHEMAS, **DIALECT_SCHEMAS}

# What the connection says before anybody looks at the path, or may say.
_OF_CONNECTION = (408, 414, 431)
_ALSO_OF_CONNECTION = (413, 500, 503)

_SHARED = {
    400: Reply("A field has a value that is wrong or not supported; `param` names it."),
    401: Reply("The key is missing or wrong."),
    403: Reply("The server has no `--admin-api-key`, so these paths are disabled."),
    404: Reply("No such path (code `not_found`)."),
    405: Reply("The method is not supported; see `Allow`."),
    408: Reply("Headers or body took longer than `--slow-client-timeout`."),
    413: Reply("The body is larger than `--max-body-bytes` (code `body_too_large`)."),
    414: Reply("The URL is longer than 8 KiB."),
    415: Reply("The content type is not JSON."),
    431: Reply("Request line and headers are larger than `--max-header-bytes`."),
    500: Reply(
        "This request failed; the log has the cause under its id. Other requests are not affected."
    ),
    503: Reply(
        "The model is loading, the engine is restarting or has ended, or the server is full or "
        "shutting down."
    ),
}


def document(
    routes: Iterable[tuple[str, str]],
    *,
    client_key: bool = False,
    admin_key: bool = False,
    model: str = "",
) -> dict[str, Any]:
    """The document of `routes` (method and path). *_key: whether such keys are set. model: in
    examples.

    Raises KeyError for a route that has no row in ALL_OPERATIONS.
    """
    operations = {route: ALL_OPERATIONS[route] for route in routes}
    needs = {"client": client_key, "admin": admin_key, "none": False}
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), operation in operations.items():
        plain = _PARAMETER.sub(r"{\1}", path)
        shown = _operation(operation, keyed=needs[operation.key], model=model)
        paths.setdefault(plain, {})[method.lower()] = shown
    tags = list(dict.fromkeys(operation.tag for operation in operations.values()))
    schemes = {
        f"{kind}Key": {"type": "http", "scheme": "bearer", "description": text}
        for kind, text in (
            ("client", "One of the keys of `--api-key`."),
            ("admin", "`--admin-api-key`."),
        )
        if needs[kind]
    }
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "headrace",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(_schemas(operations.values()).items())),
            "headers": _HEADERS,
            "parameters": {"RequestId": _REQUEST_ID},
            "responses": _shared_replies(operations.values()),
            **({"securitySchemes": schemes} if schemes else {}),
        },
    }


_HEADERS: dict[str, Any] = {
    "RequestId": {
        "description": "The request's id: yours, if it can be echoed, or a new one.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    },
    "IgnoredParams": {
        "description": "Unknown fields of the body, sorted and comma-separated.",
        "schema": {"type": "string"},
    },
    "RetryAfter": {
        "description": "Seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Allow": {"description": "Methods that the path allows.", "schema": {"type": "string"}},
    "WwwAuthenticate": {"description": "`Bearer`.", "schema": {"type": "string"}},
}
_REQUEST_ID = {
    "name": REQUEST_ID,
    "in": "header",
    "required": False,
    "description": "An id for logs, of 1 to 128 visible ASCII characters; others are replaced.",
    "schema": {"type": "string"},
}
_HEADERS_OF_STATUS = {
    401: {"WWW-Authenticate": "WwwAuthenticate"},
    405: {"Allow": "Allow"},
    429: {RETRY_AFTER: "RetryAfter"},
    503: {RETRY_AFTER: "RetryAfter"},
}


def _shared_replies(operations: Iterable[Operation]) -> dict[str, Any]:
    """Replies that many operations have, in the form of each dialect."""
    shared = {f"E{status}": _reply(reply) for status, reply in _SHARED.items()}
    for dialect in sorted({operation.dialect for operation in operations} - {""}):
        for status, reply in _SHARED.items():
            if status in _OF_CONNECTION:
                continue
            shown = _reply(in_dialect(reply, dialect))
            if status in _ALSO_OF_CONNECTION:
                schema = shown["content"][JSON]["schema"]
                either = [schema, {"$ref": REF + ErrorBody.__name__}]
                shown["content"][JSON]["schema"] = {"anyOf": either}
            shared[f"{dialect}E{status}"] = shown
    return shared


def _schemas(operations: Iterable[Operation]) -> dict[str, Schema]:
    operations = list(operations)
    structs: dict[type[msgspec.Struct], None] = {ErrorBody: None}
    named: dict[str, Schema] = {}
    for operation in operations:
        replies = (*([operation.ok] if operation.ok else []), *operation.replies.values())
        shapes = [shape for reply in replies for shape in reply.content.values() if shape]
        structs.update((shape, None) for shape in shapes if not isinstance(shape, str))
        names = [shape for shape in shapes if isinstance(shape, str)]
        if operation.body_schema is not None:
            names.append(operation.body_schema)
        if operation.dialect:
            names.append(f"{operation.dialect}Error")
        named |= {name: _NAMED_SCHEMAS[name] for name in names}
        if operation.events is not None:
            structs[operation.events] = None
    bodies = [operation.body for operation in operations if operation.body is not None]
    return reply_schemas(list(structs)) | request_schemas(bodies) | named


def _operation(operation: Operation, *, keyed: bool, model: str) -> dict[str, Any]:
    statuses = [405, 408, 414, 431, 500]
    if operation.takes_body:
        statuses += [400, 413, 415]
    if operation.needs_model:
        statuses.append(503)
    if keyed:
        statuses.append(401)
    if operation.key == "admin":
        statuses.append(403)
    replies: dict[int, Any] = {
        status: {"$ref": f"#/components/responses/{_shared_name(operation, status)}"}
        for status in statuses
    }
    replies |= {status: _reply(reply, status) for status, reply in operation.replies.items()}
    if operation.ok is not None:
        replies[200] = _reply(operation.ok, 200, operation)
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            *(
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "description": meaning,
                    "schema": {"type": "string"},
                }
                for name, meaning in operation.path_params.items()
            ),
            {"$ref": "#/components/parameters/RequestId"},
        ],
        "responses": {str(status): replies[status] for status in sorted(replies)},
        "security": [{f"{operation.key}Key": []}] if keyed else [],
    }
    if operation.description:
        shown["description"] = operation.description
    if operation.takes_body:
        name = operation.body_schema or (operation.body and operation.body.struct.__name__)
        content: dict[str, Any] = {"schema": {"$ref": f"{REF}{name}"}}
        if operation.example is not None:
            named = {"model": model} if "model" in operation.example else {}
            content["example"] = {**operation.example, **named}
        shown["requestBody"] = {"required": True, "content": {JSON: content}}
    return shown


def _shared_name(operation: Operation, status: int) -> str:
    dialect = "" if status in _OF_CONNECTION else operation.dialect
    return f"{dialect}E{status}"


def _reply(reply: Reply, status: int = 0, operation: Operation | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media, struct in reply.content.items():
        schema: Schema = {"type": "object" if media == JSON else "string"}
        if struct is not None:
            schema = {"$ref": REF + (struct if isinstance(struct, str) else struct.__name__)}
        elif media == EVENTS and operation is not None and operation.events is not None:
            schema = _event(operation.events)
        content[media] = {"schema": schema}
    headers = {REQUEST_ID: {"$ref": "#/components/headers/RequestId"}}
    if operation is not None and operation.takes_body:
        headers[IGNORED_PARAMS] = {"$ref": "#/components/headers/IgnoredParams"}
    for name, component in _HEADERS_OF_STATUS.get(status, {}).items():
        headers[name] = {"$ref": f"#/components/headers/{component}"}
    return {"description": reply.meaning, "headers": headers, "content": content}


def _event(struct: type[msgspec.Struct]) -> Schema:
    """One event of a stream, as OpenAPI 3.2 describes those: its fields, and JSON in `data`."""
    either = [{"$ref": REF + one.__name__} for one in (struct, ErrorBody)]
    content = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": {"anyOf": either},
    }
    data = {"anyOf": [{"const": "[DONE]", "description": "The last event."}, content]}
    return {
        "title": "Event",
        "description": "Each event of the stream.",
        "type": "object",
        "properties": {"data": data},
        "required": ["data"],
    }
