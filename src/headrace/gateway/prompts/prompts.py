"""The prompts of a file, and what a request that names one becomes.

A request says `"prompt": {"id": ..., "version" or "label": ..., "variables": {...}}`, as OpenAI's
Responses API has it, or LiteLLM's `prompt_id`, `prompt_version`, `prompt_label`,
`prompt_variables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from headrace.config.field_error import field_error
from headrace.config.load import nearest
from headrace.errors import RequestError, shown
from headrace.gateway.prompts.insert import Changes, defaults, inserted
from headrace.gateway.prompts.prompt import Prompt
from headrace.gateway.routing.variants import user_of
from headrace.gateway.serving.who import SESSION_HEADERS
from headrace.protocol.json_object import JsonObject

_FIELD = "prompt"
_LITELLM = ("prompt_id", "prompt_version", "prompt_label", "prompt_variables")
_RESPONSES = "openai-responses"


class _Named(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=200)]
    version: str | int | None = None
    label: str | None = None
    variables: dict[str, Any] | None = None


class Applied(NamedTuple):
    """A body with its prompt inserted."""

    body: JsonObject
    prompt: str
    """"name@version"; "" if the request names none of this file."""


class Prompts:
    """The prompts of the file, by name."""

    def __init__(self, by_name: Mapping[str, Prompt]) -> None:
        self.by_name = by_name

    def applied(
        self,
        dialect: str,
        body: JsonObject,
        headers: Mapping[str, str],
        key: str | None,
        request_id: str,
    ) -> Applied:
        """The request with its prompt in it. Where a label has several versions, a user or a
        session keeps its own, else a key does.

        Raises RequestError naming what is missing or unknown. A Responses request with a prompt
        that is not of this file stays as it is: its provider may keep that.
        """
        named = self._named(dialect, body)
        if named is None:
            return Applied(body, "")
        prompt = self.by_name[named.id]
        if named.version is not None:
            version = prompt.version(str(named.version))
        else:
            session = next((headers[one] for one in SESSION_HEADERS if one in headers), None)
            who = session or user_of(body) or key or request_id
            version = prompt.labelled(named.label, who)
        changes: Changes = {name: None for name in (_FIELD, *_LITELLM) if name in body}
        changes |= inserted(dialect, body, version.said(named.variables or {}))
        changes |= defaults(dialect, body, version.parameters)
        if version.model is not None and not body.text("model"):
            changes["model"] = msgspec.json.encode(version.model)
        return Applied(JsonObject.read(body.edited(changes)), version.full_name)

    def _named(self, dialect: str, body: JsonObject) -> _Named | None:
        given = body.decoded(_FIELD) if _FIELD in body else None
        litellm = {
            name.removeprefix("prompt_"): body.decoded(name) for name in _LITELLM if name in body
        }
        if (
            isinstance(given, dict)
            and dialect == _RESPONSES
            and given.get("id") not in self.by_name
        ):
            return None
        if litellm.get("id") is None and not isinstance(given, dict):
            return None  # a text of another API, which has that field for it
        if isinstance(given, dict) and litellm:
            raise RequestError("prompt and prompt_id: give only one of them", param=_FIELD)
        try:
            told = given if isinstance(given, dict) else litellm
            named = msgspec.convert(told, _Named)
        except msgspec.ValidationError as error:
            found = field_error(error, told, _Named)
            place = _FIELD + found.place
            raise RequestError(
                f"{place}: {found.said}; id, version or label, and variables are known", param=place
            ) from None
        if named.version is not None and named.label is not None:
            raise RequestError("prompt: give either version or label", param=_FIELD)
        if named.id not in self.by_name:
            meant = nearest(named.id, self.by_name)
            raise RequestError(
                f"prompt.id: {shown(named.id)} is not a prompt of this gateway{meant}",
                param="prompt.id",
            )
        return named
