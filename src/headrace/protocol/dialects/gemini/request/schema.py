"""A client's JSON schema as Gemini takes it.

FunctionDeclaration and GenerationConfig have two fields each for a schema: `parameters` and
`responseSchema` take the small OpenAPI form of content.proto's `Schema`, `parametersJsonSchema` and
`responseJsonSchema` take JSON schema. The latter are used, since they keep `$ref` (also a recursive
one, in properties that are not required), `additionalProperties`, `prefixItems` and lists of types;
both APIs serve them for all models since Gemini 2.0.

Kept: what generative_service.proto lists for response_json_schema, and what `Schema` has beside
(pattern, lengths, numbers of properties, default) or was seen accepted (uniqueItems). Said in
other words:

    definitions, other pointers   $defs; a remote or dangling $ref is an error
    $ref beside other keywords    anyOf with that one branch; at the root the target itself
    allOf                         one object, where its branches do not contradict each other
    const                         enum of one
    null in an enum               anyOf with the type null
    nullable                      a list of types with null
    exclusiveMinimum, -Maximum    of integers the next one; of others the bound itself, reported
    format, but those listed      words in the description
    items as a list               prefixItems

What is left (not, if, patternProperties, multipleOf, ...) is removed and reported; mere notes
($schema, examples, deprecated, x-...) are removed.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from urllib.parse import unquote

from headrace.errors import RequestError, shown

_MOST_DEPTH = 100
# Schemas put into each other by allOf can grow without end.
_MOST_STEPS = 50_000

_AS_IT_IS = frozenset(
    (
        "$id",
        "$anchor",
        "title",
        "description",
        "default",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "minProperties",
        "maxProperties",
        "required",
        "propertyOrdering",
    )
)
_NOTES = frozenset(
    (
        "$schema",
        "$comment",
        "$vocabulary",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "discriminator",
        "externalDocs",
        "xml",
    )
)
_ELSEWHERE = frozenset(("$defs", "definitions", "$ref", "allOf", "nullable", "const"))
_FORMATS = frozenset(("date-time", "date", "time", "enum", "float", "double", "int32", "int64"))
_BOUNDS = {"exclusiveMinimum": ("minimum", 1), "exclusiveMaximum": ("maximum", -1)}


def json_schema(schema: dict[str, Any], param: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema and the keywords it lost; raises RequestError(param=param) for a broken one."""
    work = _Conversion(schema, param)
    root = dict(schema)
    seen = set()
    while isinstance(root.get("$ref"), str):
        if root["$ref"] in seen:
            raise work.error(f"$ref {shown(root['$ref'])} leads back to itself")
        seen.add(root["$ref"])
        beside = {key: value for key, value in root.items() if key != "$ref"}
        root = {**work.target(root["$ref"]), **beside}
    converted = work.schema(root, 0)
    work.convert_definitions()
    if work.definitions:
        converted["$defs"] = work.definitions
    return converted, tuple(sorted(work.lost))


class _Conversion:
    """One schema while it is converted."""

    def __init__(self, root: dict[str, Any], param: str) -> None:
        self._root = root
        self._param = param
        self._names: dict[str, str] = {}
        self._same_names: dict[str, int] = {}
        self._steps = 0
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self.definitions: dict[str, Any] = {}
        self.lost: set[str] = set()

    def error(self, what: str) -> RequestError:
        return RequestError(f"{self._param}: {what}", param=self._param, code="invalid_schema")

    def convert_definitions(self) -> None:
        """Convert referenced definitions in a loop, without recursion, since one refers to the
        next."""
        while self._waiting:
            name, target = self._waiting.popleft()
            self.definitions[name] = self.schema(target, 1)

    def target(self, pointer: str) -> dict[str, Any]:
        """The target of a $ref."""
        if not pointer.startswith("#") or (len(pointer) > 1 and pointer[1] != "/"):
            raise self.error(
                f"$ref {shown(pointer)} does not point into the schema itself ('#/$defs/...'): "
                "put its target there"
            )
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 6:
                found = found[int(key)] if int(key) < len(found) else None
            else:
                found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, bool):
            return {}
        if not isinstance(found, dict):
            raise self.error(f"$ref {shown(pointer)} points to nothing")
        return found

    def schema(self, node: Any, depth: int) -> dict[str, Any]:
        """The schema, converted."""
        self._step()
        if depth > _MOST_DEPTH:
            raise self.error(f"the schema is nested deeper than {_MOST_DEPTH}: make it flatter")
        if not isinstance(node, dict):
            if node is False:
                self.lost.add("false")
            return {}
        if "allOf" in node:
            node = self._all_of(node, depth)
        made: dict[str, Any] = {}
        for key, value in node.items():
            self._keyword(made, node, key, value, depth)
        self._values(made, node)
        if node.get("nullable") is True and isinstance(made.get("type"), str):
            made["type"] = [made["type"], "null"]
        return self._referring(made, node)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise self.error(f"the schema has more than {_MOST_STEPS} parts: make it smaller")

    def _keyword(
        self, made: dict[str, Any], node: dict[str, Any], key: str, value: Any, depth: int
    ) -> None:
        if key in _AS_IT_IS:
            made.setdefault(key, value)
        elif key == "type":
            made["type"] = _type(value)
        elif key == "properties":
            held = value if isinstance(value, dict) else {}
            made[key] = {name: self.schema(inner, depth + 1) for name, inner in held.items()}
        elif key in ("anyOf", "oneOf", "prefixItems") or (key == "items" and _is_list(value)):
            branches = value if isinstance(value, list) else []
            name = "prefixItems" if key == "items" else key
            made[name] = [self.schema(branch, depth + 1) for branch in branches]
        elif key == "items":
            made[key] = self.schema(value, depth + 1)
        elif key == "additionalProperties":
            made[key] = value if isinstance(value, bool) else self.schema(value, depth + 1)
        elif key == "format":
            self._format(made, node, value)
        elif key in _BOUNDS:
            self._bound(made, node, key, value)
        elif key not in _ELSEWHERE and key != "enum" and not _is_note(key):
            self.lost.add(key)

    def _format(self, made: dict[str, Any], node: dict[str, Any], value: Any) -> None:
        if isinstance(value, str) and value in _FORMATS:
            made["format"] = value
        elif isinstance(value, str):
            said = node.get("description")
            made["description"] = f"{said} (format: {value})" if said else f"Format: {value}"

    def _bound(self, made: dict[str, Any], node: dict[str, Any], key: str, value: Any) -> None:
        name, step = _BOUNDS[key]
        if isinstance(value, bool):  # as in draft 4: says how the bound beside it is meant
            if not value:
                return
            value = node.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 2**60:
            return
        whole = _type(node.get("type")) in ("integer", ["integer", "null"])
        if whole and float(value).is_integer():
            value = int(value) + step
        else:
            self.lost.add(key)
        given = node.get(name)
        if isinstance(given, int | float) and not isinstance(node[key], bool):
            value = max(value, given) if step > 0 else min(value, given)
        made[name] = value

    def _values(self, made: dict[str, Any], node: dict[str, Any]) -> None:
        """enum and const: strings and numbers are all that may stand there."""
        values = [node["const"]] if "const" in node else node.get("enum")
        if not isinstance(values, list):
            return
        named = [
            value
            for value in values
            if isinstance(value, str | int | float) and not _is_bool(value)
        ]
        truths = {truth for truth in values if _is_bool(truth)}
        if len(named) + len(truths) + values.count(None) < len(values) or len(truths) == 1:
            self.lost.add("const" if "const" in node else "enum")
            return
        branches: list[dict[str, Any]] = []
        if named:
            kind = made.get("type")
            kind = kind if isinstance(kind, str) else _type_of(named)
            branches.append({"type": kind, "enum": named} if kind else {"enum": named})
        if truths:
            branches.append({"type": "boolean"})
        if None in values:
            branches.append({"type": "null"})
        made.pop("type", None)
        if len(branches) > 1 and "anyOf" in made:
            self.lost.add("enum")
        elif len(branches) == 1:
            made.update(branches[0])
        else:
            made["anyOf"] = branches

    def _referring(self, made: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
        pointer = node.get("$ref")
        if not isinstance(pointer, str):
            return made
        link = {"$ref": f"#/$defs/{self._name(pointer)}"}
        if not made:
            return link
        if "anyOf" in made:
            self.lost.add("anyOf beside $ref")
        made["anyOf"] = [link]
        return made

    def _name(self, pointer: str) -> str:
        if pointer not in self._names:
            target = self.target(pointer)
            wish = "".join(
                character
                if character.isascii() and (character.isalnum() or character in "_-.")
                else "_"
                for character in unquote(pointer.rpartition("/")[2]).lstrip("#")
            )
            wish = name = wish or "root"
            while name in self.definitions:
                self._same_names[wish] = self._same_names.get(wish, 1) + 1
                name = f"{wish}_{self._same_names[wish]}"
            self._names[pointer] = name
            self.definitions[name] = {}
            self._waiting.append((name, target))
        return self._names[pointer]

    def _all_of(self, node: dict[str, Any], depth: int) -> dict[str, Any]:
        """The node with its allOf's branches in it; what contradicts is lost."""
        branches = node["allOf"] if isinstance(node["allOf"], list) else []
        merged = {key: value for key, value in node.items() if key != "allOf"}
        alone = branches[0] if len(branches) == 1 else None
        if isinstance(alone, dict) and "$ref" in alone and "$ref" not in merged:
            return {**alone, **merged}
        for branch in branches:
            self._step()
            held = branch if isinstance(branch, dict) else {}
            for _ in range(_MOST_DEPTH):
                if not isinstance(held.get("$ref"), str):
                    break
                beside = {key: value for key, value in held.items() if key != "$ref"}
                held = {**self.target(held["$ref"]), **beside}
            if "allOf" in held:
                if depth > _MOST_DEPTH:
                    raise self.error(f"allOf is nested deeper than {_MOST_DEPTH}")
                held = self._all_of(held, depth + 1)
            self._merge(merged, held)
        return merged

    def _merge(self, merged: dict[str, Any], branch: dict[str, Any]) -> None:
        for key, value in branch.items():
            if key in ("$defs", "definitions", "$id"):
                continue
            given = merged.get(key)
            if key not in merged:
                merged[key] = value
            elif key == "properties" and isinstance(given, dict) and isinstance(value, dict):
                if any(given[name] != value[name] for name in given.keys() & value.keys()):
                    self.lost.add("allOf")
                merged[key] = {**value, **given}
            elif key == "required" and isinstance(given, list) and isinstance(value, list):
                names = (
                    given_name for given_name in (*given, *value) if isinstance(given_name, str)
                )
                merged[key] = list(dict.fromkeys(names))
            elif given != value and key not in ("title", "description"):
                self.lost.add("allOf")


def _type(value: Any) -> Any:
    """Lower case: clients that know OpenAPI's form write STRING."""
    if isinstance(value, list):
        return [_type(name) for name in value]
    return value.lower() if isinstance(value, str) else value


def _type_of(values: list[Any]) -> str | None:
    if all(isinstance(value, str) for value in values):
        return "string"
    if all(isinstance(member, int) for member in values):
        return "integer"
    return "number" if all(isinstance(member, int | float) for member in values) else None


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_note(key: str) -> bool:
    return key in _NOTES or key.startswith("x-")
