"""The OpenAPI 3.1 document of the admin API, made from its operations and the structs they name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace import __version__
from headrace.gateway.admin.operations import Operation, Struct
from headrace.protocol.openai.error import ErrorBody

_REF = "#/components/schemas/"
_CONVERTER = re.compile(r"\{(\w+):\w+\}")
_ABOUT = (
    "What administrators of a headrace gateway see and do. Failures have the body "
    '`{"error": {"message", "type", "param", "code"}}`.'
)


def document(operations: Iterable[Operation], *, needs_key: bool) -> dict[str, Any]:
    """The document of all operations. needs_key: whether the port requires a key."""
    operations = tuple(operations)
    structs: dict[Struct, None] = {ErrorBody: None}
    for one in operations:
        structs.update((found, None) for found in (one.body, one.reply, one.events) if found)
    _, schemas = msgspec.json.schema_components(list(structs), ref_template=_REF + "{name}")
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(_CONVERTER.sub(r"{\1}", one.path), {})[one.method.lower()] = _shown(one)
    components: dict[str, Any] = {"schemas": dict(sorted(schemas.items()))}
    if needs_key:
        components["securitySchemes"] = {"adminKey": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace gateway: admin API", "version": __version__, "description": _ABOUT,
        },
        "servers": [{"url": "/"}],
        "security": [{"adminKey": []}] if needs_key else [],
        "paths": paths,
        "components": components,
    }  # fmt: skip


def _shown(one: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": where, "required": where == "path", "description": meaning,
         "schema": {"type": "string"}}
        for where, named in (("path", one.places), ("query", one.query))
        for name, meaning in named.items()
    ]  # fmt: skip
    content: dict[str, Any] = {}
    if one.reply is not None:
        content["application/json"] = {"schema": _ref(one.reply)}
    if one.events is not None:
        # A stream has no schema in OpenAPI 3.1; its events are named beside it.
        content["text/event-stream"] = {
            "schema": {"type": "string", "contentMediaType": "application/json",
                       "contentSchema": _ref(one.events)},
        }  # fmt: skip
    if "format" in one.query:
        content["text/csv"] = {"schema": {"type": "string"}}
    shown: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The reply.", "content": content},
            "default": {
                "description": "The request failed; the message says why.",
                "content": {"application/json": {"schema": _ref(ErrorBody)}},
            },
        },
    }
    if one.body is not None:
        body = {"application/json": {"schema": _ref(one.body)}}
        shown["requestBody"] = {"required": True, "content": body}
    return shown


def _ref(struct: Struct) -> dict[str, str]:
    return {"$ref": _REF + struct.__name__}
