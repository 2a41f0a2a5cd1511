"""Request fields that hold an answer to a form, as OpenAI, vLLM, SGLang and llama-server name them.

What they may be is read in `headrace.structured.request`; at most one of them may be given.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class StructuredFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields by which a request constrains what its answer may be."""

    response_format: Annotated[
        dict[str, Any] | None,
        Meta(
            description="`{type: text}`, `{type: json_object}`, with a `schema` if wanted, "
            "`{type: json_schema, json_schema: {name, schema, strict}}`: the answer is JSON of "
            "that form; or `{type: structural_tag, ...}`: parts of it are, between tags."
        ),
    ] = None
    structured_outputs: Annotated[
        dict[str, Any] | None,
        Meta(
            description="vLLM's: exactly one of `json`, `regex`, `choice`, `grammar`, "
            "`json_object` and `structural_tag`."
        ),
    ] = None
    guided_json: Annotated[
        Any, Meta(description="JSON schema of the answer, as an object or as text.")
    ] = None
    guided_whitespace_pattern: Annotated[
        str | None, Meta(description="White space of the JSON that `guided_json` describes.")
    ] = None
    guided_regex: Annotated[
        str | None, Meta(description="Regular expression that the whole answer matches.")
    ] = None
    guided_choice: Annotated[
        list[str] | None, Meta(description="Texts of which the answer is one.")
    ] = None
    guided_grammar: Annotated[
        str | None, Meta(description="Grammar of the answer, in Lark's or in llama.cpp's notation.")
    ] = None
    regex: Annotated[str | None, Meta(description="SGLang's: the same as `guided_regex`.")] = None
    ebnf: Annotated[str | None, Meta(description="SGLang's: grammar of the answer in GBNF.")] = None
    grammar: Annotated[
        str | None, Meta(description="llama-server's: grammar of the answer in GBNF.")
    ] = None
    json_schema: Annotated[
        Any, Meta(description="llama-server's and SGLang's: JSON schema of the answer.")
    ] = None

    @property
    def given_form(self) -> dict[str, Any]:
        """The fields that constrain the answer and are given, by name."""
        given: dict[str, Any] = {}
        for name in StructuredFields.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not _is_free(name, value):
                given[name] = value
        return given


def _is_free(name: str, value: object) -> bool:
    """Whether a field that is given asks for free text."""
    if name == "response_format":
        return isinstance(value, dict) and value.get("type") == "text"
    return name == "grammar" and value == ""
