"""JSON Schemas of requests and replies, made from the structs that decode and encode them.

Requests: limits of numbers come from the engine's ranges, null is allowed where a field may be left
out, unknown fields are allowed, and fields that are known and not honoured take the values they
are harmless with. Rules that the structs leave to functions (`check_chat` and its like) are written
here as constraints; tests send what the schemas forbid and expect it to be refused.
Replies: a field that is always written is required. Knows neither routes nor HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec

from headrace.engine.params import MAX_INT, MAX_LOGIT_BIAS, RANGES, SAMPLERS
from headrace.protocol.openai.chat import PARTS, REASONING_EFFORTS, ROLES
from headrace.protocol.openai.completions import MAX_PROMPTS
from headrace.protocol.openai.sampling import MAX_STOP_CHARS, MAX_STOP_STRINGS
from headrace.protocol.request import Endpoint, Known, Nested

Schema = dict[str, Any]

REF = "#/components/schemas/"
_NULL = {"type": "null"}
_NUMBERS = ("integer", "number")
_NAMED = "is a hint, named in the header X-Ignored-Params"
_UNKNOWN = "Unknown fields are accepted and named in the header X-Ignored-Params."
_JSON_TYPES = {str: "string", bool: "boolean", dict: "object", list: "array"}

_STOP = {"type": "string", "maxLength": MAX_STOP_CHARS}
_TOKEN_ID = {"type": "integer", "minimum": 0, "maximum": MAX_INT}
_TOKEN_IDS = {"type": "array", "items": _TOKEN_ID}
# What functions demand beyond the types of fields: of what both generation endpoints take,
_SAMPLED = ("ChatCompletionRequest", "CompletionRequest")
_SAMPLING: Mapping[str, Schema] = {
    "stop": {
        "anyOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOP_STRINGS}, _NULL]
    },
    "logit_bias": {
        "type": ["object", "null"],
        "patternProperties": {
            "^(0|[1-9][0-9]{0,18})$": {
                "type": "number",
                "minimum": -MAX_LOGIT_BIAS,
                "maximum": MAX_LOGIT_BIAS,
            }
        },
        "additionalProperties": False,
    },
    "samplers": {
        "type": ["array", "null"],
        "items": {"enum": list(SAMPLERS)},
        "uniqueItems": True,
    },
    "truncate_prompt_tokens": {"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1}, _NULL]},
    "timeout_s": {
        "type": ["number", "null"],
        "exclusiveMinimum": 0,
        "maximum": RANGES["timeout_s"].high,
    },
    "allowed_token_ids": {"anyOf": [{**_TOKEN_IDS, "minItems": 1}, _NULL]},
    "request_id": {"type": ["string", "null"], "pattern": "^[!-~]{1,128}$"},
}
# and by struct and field.
_RULES: Mapping[tuple[str, str], Schema] = {
    **{(struct, field): rule for struct in _SAMPLED for field, rule in _SAMPLING.items()},
    ("Message", "role"): {"type": "string", "enum": list(ROLES)},
    ("ContentPart", "type"): {"type": "string", "enum": list(PARTS)},
    ("ChatCompletionRequest", "reasoning_effort"): {"enum": [*REASONING_EFFORTS, None]},
    ("CompletionRequest", "prompt"): {
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "maxItems": MAX_PROMPTS, "minItems": 1},
            {**_TOKEN_IDS, "minItems": 1},
            {"type": "array", "items": _TOKEN_IDS, "maxItems": MAX_PROMPTS, "minItems": 1},
        ]
    },
}
_ANY_OF = {
    "ContentPart": [
        {"required": [kind], "properties": {"type": {"const": kind}, kind: {"type": "string"}}}
        for kind in PARTS
    ],
    "Message": [
        {"properties": {"role": {"const": "assistant"}}},
        {"required": ["content"], "properties": {"content": {"type": ["string", "array"]}}},
    ],
    "TokenizeRequest": [
        {"required": [name], "properties": {name: {"type": kind}}}
        for name, kind in (("prompt", "string"), ("messages", "array"))
    ],
}


def request_schemas(endpoints: Iterable[Endpoint[Any]]) -> dict[str, Schema]:
    """Schemas of what the endpoints take, and of the structs within, by name."""
    endpoints = list(endpoints)
    _, schemas = msgspec.json.schema_components(
        [endpoint.struct for endpoint in endpoints], ref_template=REF + "{name}"
    )
    done: set[str] = set()
    for endpoint in endpoints:
        rules = Nested(frozenset(endpoint.honoured), endpoint.known, endpoint.nested)
        _open(schemas, endpoint.struct.__name__, rules, done)
    for name in schemas.keys() - done:
        schemas[name]["additionalProperties"] = True
    return schemas


def reply_schemas(structs: Sequence[type[msgspec.Struct]]) -> dict[str, Schema]:
    """Schemas of what is sent, and of the structs within, by name."""
    _, schemas = msgspec.json.schema_components(structs, ref_template=REF + "{name}")
    for struct in _with_inner(structs):
        schema = schemas.get(struct.__name__)
        if schema is None or struct.__struct_config__.omit_defaults:
            continue
        fields = msgspec.structs.fields(struct)
        schema["required"] = [one.encode_name for one in fields if not _may_be_unset(one.type)]
        for name, property_ in schema["properties"].items():
            default = property_.pop("default", None)
            if name == "object" and default is not None:
                property_["const"] = default
    return schemas


def _with_inner(structs: Iterable[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """The structs and all those their fields are made of."""
    found: dict[type[msgspec.Struct], None] = {}
    pending: list[Any] = list(structs)
    while pending:
        kind = pending.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found[kind] = None
                pending += [one.type for one in msgspec.structs.fields(kind)]
        else:
            pending += getattr(kind, "__args__", ())
    return list(found)


def _may_be_unset(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        return _may_be_unset(get_args(kind)[0])
    return kind is msgspec.UnsetType or msgspec.UnsetType in get_args(kind)


def _open(schemas: dict[str, Schema], name: str, rules: Nested, done: set[str]) -> None:
    """Change the schema of a struct, and of those below it, into what the server takes."""
    if name in done:
        return
    done.add(name)
    schema = schemas[name]
    properties: dict[str, Schema] = schema["properties"]
    required = set(schema.get("required", ()))
    for field, old in list(properties.items()):
        description = {"description": old["description"]} if "description" in old else {}
        rule = _RULES.get((name, field))
        if rule is not None:
            properties[field] = {**description, **rule}
        else:
            _limit(old, field)
            if field not in required:
                properties[field] = _or_null(old)
        if field in rules.nested:
            for inner in _references(old):
                _open(schemas, inner, rules.nested[field], done)
    for row in rules.known.values():
        properties[row.name] = _known(row)
    if name in _ANY_OF:
        schema["anyOf"] = _ANY_OF[name]
    schema["additionalProperties"] = True
    schema["description"] = f"{schema.get('description', '')} {_UNKNOWN}".strip()


def _limit(schema: Schema, field: str) -> None:
    """Bound every number in a schema: by the engine's range where it has one, and by 64 bits."""
    low, high = RANGES.get(field, (None, 0))
    for part in _parts(schema):
        if part.get("type") not in _NUMBERS:
            continue
        whole = part["type"] == "integer"
        if low is None and not whole:
            continue
        least, most = (-MAX_INT - 1, MAX_INT) if low is None else (low, high)
        least, most = max(least, part.get("minimum", least)), min(most, part.get("maximum", most))
        part["minimum"], part["maximum"] = (int(least), int(most)) if whole else (least, most)


def _parts(schema: Any) -> Iterable[Schema]:
    """A schema and those within it."""
    if isinstance(schema, dict):
        yield schema
        for key in ("items", "additionalProperties"):
            yield from _parts(schema.get(key))
        for inner in schema.get("anyOf", ()):
            yield from _parts(inner)


def _references(schema: Schema) -> list[str]:
    return [part["$ref"].removeprefix(REF) for part in _parts(schema) if "$ref" in part]


def _or_null(schema: Schema) -> Schema:
    """The schema, of a field that may also be null, which is the same as leaving it out."""
    if "anyOf" in schema:
        if _NULL not in schema["anyOf"]:
            schema["anyOf"].append(_NULL)
        return schema
    outer: Schema = {key: schema.pop(key) for key in ("description", "default") if key in schema}
    return {**outer, "anyOf": [schema, _NULL]}


def _known(row: Known) -> Schema:
    """A field that is not honoured: the values that change nothing, those that are hints, or null.

    A hint has no effect, and is named in the reply's header.
    """
    why = f" ({row.why})" if row.why else ""
    if isinstance(row.accepts, type):
        text = f"Accepted without effect{why}."
        return {"description": text, "type": [_JSON_TYPES[row.accepts], "null"]}
    if isinstance(row.hints, type):
        text = f"Accepted without effect{why}: {_NAMED}."
        return {"description": text, "type": [_JSON_TYPES[row.hints], "null"]}
    if row.hints:
        harmless = " and ".join(_json(value) for value in row.accepts)
        text = f"Accepted without effect: any but {harmless}{why} {_NAMED}."
        return {"description": text, "enum": [*row.accepts, *row.hints, None]}
    if not row.accepts:
        return {"description": "Not supported: refused if given.", "type": "null"}
    text = f"Not supported: only {row.accepted} is accepted{why}."
    return {"description": text, "enum": [*row.accepts, None]}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
