"""What a request says of the cache: in `cache-control`, or in LiteLLM's words in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from headrace.config.field_error import field_error
from headrace.errors import RequestError

FIELD = "cache"


class Wish(NamedTuple):
    """max_age_s: how old an answer may be. ttl_s: how long a new one is kept at most. namespace:
    answers of other ones are not given."""

    reads: bool = True
    stores: bool = True
    max_age_s: float | None = None
    ttl_s: float | None = None
    namespace: str = ""


class _Field(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """The body's `cache`. Source: docs.litellm.ai/docs/proxy/caching, "Cache controls"."""

    no_cache: bool = False
    no_store: bool = False
    ttl: Annotated[float, Meta(gt=0)] | None = None
    s_maxage: Annotated[float, Meta(ge=0)] | None = None
    namespace: Annotated[str, Meta(max_length=200)] = ""


def wish_of(headers: Mapping[str, str], field: Any) -> Wish:
    """field: of the body, None without one. What both say is the stricter of the two.

    Raises RequestError for a field that is not as it must be; directives nobody knows are passed
    over, as HTTP has it.
    """
    said = _Field()
    if field is not None:
        try:
            said = msgspec.convert(field, _Field)
        except msgspec.ValidationError as error:
            found = field_error(error, field, _Field)
            place = FIELD + found.place
            raise RequestError(
                f"{place}: {found.said}; no-cache, no-store, ttl, s-maxage and namespace are known",
                param=place,
            ) from None
    ages = [] if said.s_maxage is None else [said.s_maxage]
    reads, stores = not (said.no_cache or said.no_store), not said.no_store
    for directive in headers.get("cache-control", "").split(","):
        name, _, value = directive.strip().lower().partition("=")
        if name == "no-store":
            reads = stores = False
        elif name == "no-cache":
            reads = False
        elif name == "max-age":
            # RFC 9111, 4.2.1: what cannot be read is taken for an answer too old.
            value = value.strip('"')
            ages.append(float(value) if value.isascii() and value.isdigit() else 0.0)
    max_age_s = min(ages, default=None)
    return Wish(
        # An age is whole seconds at the least; nothing is fresh enough for 0.
        reads=reads and max_age_s != 0,
        stores=stores,
        max_age_s=max_age_s,
        ttl_s=said.ttl,
        namespace=said.namespace,
    )
