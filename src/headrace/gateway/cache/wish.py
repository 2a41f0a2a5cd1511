"""The cache settings of a request: in `cache-control`, or in LiteLLM's format in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from headrace.config.field_error import field_error
from headrace.errors import RequestError

FIELD = "cache"


class Wish(NamedTuple):
    """A request's permission to use and fill the cache."""

    reads: bool = True
    stores: bool = True
    max_age_s: float | None = None
    """The greatest age of an answer."""
    ttl_s: float | None = None
    """How long a new answer may be kept."""
    namespace: str = ""
    """Only answers of this namespace are used."""


class _Field(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The body's `cache`. Source: docs.litellm.ai/docs/proxy/caching, "Cache controls"."""

    no_cache: bool = False
    no_store: bool = False
    ttl: Annotated[float, Meta(gt=0)] | None = None
    s_maxage: Annotated[float, Meta(ge=0)] | None = None
    namespace: Annotated[str, Meta(max_length=200)] = ""


def wish_of(headers: Mapping[str, str], field: Any) -> Wish:
    """The cache settings of a request; where header and body differ, the stricter one applies.

    `field` is the body's `cache`, None without one. Raises RequestError if it is invalid; unknown
    directives are ignored, as in HTTP.
    """
    body_field = _Field()
    if field is not None:
        try:
            body_field = msgspec.convert(field, _Field)
        except msgspec.ValidationError as error:
            found = field_error(error, field, _Field)
            place = FIELD + found.place
            raise RequestError(
                f"{place}: {found.said}; the known fields are `no-cache`, `no-store`, `ttl`, "
                "`s-maxage` and `namespace`",
                param=place,
            ) from None
    ages = [] if body_field.s_maxage is None else [body_field.s_maxage]
    reads, stores = not (body_field.no_cache or body_field.no_store), not body_field.no_store
    for directive in headers.get("cache-control", "").split(","):
        name, _, value = directive.strip().lower().partition("=")
        if name == "no-store":
            reads = stores = False
        elif name == "no-cache":
            reads = False
        elif name == "max-age":
            # RFC 9111, 4.2.1: an unreadable age makes every stored answer too old.
            value = value.strip('"')
            ages.append(float(value) if value.isascii() and value.isdigit() else 0.0)
    max_age_s = min(ages, default=None)
    return Wish(
        # Ages are whole seconds or more; nothing is recent enough for 0.
        reads=reads and max_age_s != 0,
        stores=stores,
        max_age_s=max_age_s,
        ttl_s=body_field.ttl,
        namespace=body_field.namespace,
    )
