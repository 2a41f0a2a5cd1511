"""What all rows have, and the types that their fields are declared with.

The type of a field carries its unit (`Meta.extra`), so that reader, errors and tables need no list
of their own. A field that nobody stated is None, or empty where it holds several values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from headrace.catalog.fact import Fact
from headrace.catalog.names import hint
from headrace.catalog.span import Span
from headrace.errors import CatalogError

# Not above 0 where 0 says something: no shared experts, free of charge.
Bytes = Annotated[int, msgspec.Meta(gt=0, extra={"unit": "byte"})]
BytesPerSecond = Annotated[float, msgspec.Meta(gt=0, extra={"unit": "byte/s"})]
FlopsPerSecond = Annotated[float, msgspec.Meta(gt=0, extra={"unit": "FLOP/s"})]
Watts = Annotated[float, msgspec.Meta(gt=0, extra={"unit": "W"})]
Seconds = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "s"})]
Parameters = Annotated[int, msgspec.Meta(gt=0, extra={"unit": "parameters"})]
Tokens = Annotated[int, msgspec.Meta(gt=0, extra={"unit": "tokens"})]
Bits = Annotated[float, msgspec.Meta(gt=0, extra={"unit": "bits/weight"})]
Perplexity = Annotated[float, msgspec.Meta(extra={"unit": "perplexity"})]
Share = Annotated[float, msgspec.Meta(ge=0, le=1, extra={"unit": "share"})]
Factor = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "x"})]
Count = Annotated[int, msgspec.Meta(ge=0, extra={"unit": ""})]
UsdSpan = Annotated[Span, msgspec.Meta(extra={"unit": "USD"})]
UsdPerMillionTokens = Annotated[float, msgspec.Meta(ge=0, extra={"unit": "USD/1M tokens"})]
SecondsSpan = Annotated[Span, msgspec.Meta(extra={"unit": "s"})]
TokensPerSecond = Annotated[Span, msgspec.Meta(extra={"unit": "tokens/s"})]
RequestsPerSecond = Annotated[Span, msgspec.Meta(extra={"unit": "requests/s"})]
ShareSpan = Annotated[Span, msgspec.Meta(extra={"unit": "share"})]
UsdPerHourSpan = Annotated[Span, msgspec.Meta(extra={"unit": "USD/h"})]
UsdPerMillionTokensSpan = Annotated[Span, msgspec.Meta(extra={"unit": "USD/1M tokens"})]
# The unit is part of what the file says.
Figure = Annotated[Span, msgspec.Meta(extra={"unit": None})]

_NO_FACTS: Mapping[str, Fact] = MappingProxyType({})


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that facts are known about."""

    id: str
    """A slug, unique in the catalog."""
    name: str
    aliases: tuple[str, ...] = ()
    """Other names it is found by."""
    facts: Mapping[str, Fact] = _NO_FACTS
    """What is behind each field, by its name; by `name.key` where a field holds several values, as
    `price_usd_per_hour.runpod`.
    """

    def fact(self, field: str) -> Fact:
        """The fact behind a field; raises CatalogError naming the nearest where there is none."""
        found = self.facts.get(field)
        if found is None:
            raise CatalogError(
                f"{self.id} has no fact {field!r}; {hint(field, self.facts) or 'it has none'}"
            )
        return found

    @property
    def disputed_by(self) -> tuple[str, ...]:
        """Ids of the contradictions that any of the facts is part of, in order."""
        return tuple(sorted({id for fact in self.facts.values() for id in fact.disputed_by}))
