"""Rate limits for models that cost nothing, and for callers without a key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**60)]


class FreeTierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Rate limits for models that cost nothing, like OpenRouter's."""

    rpm: Annotated[Count | None, Meta(description="Requests in any minute.")] = 20
    rpd: Annotated[Count | None, Meta(description="Requests per UTC day.")] = 50
    per: Annotated[
        tuple[Literal["key", "address"], ...],
        Meta(min_length=1, description="What is limited separately: each key, each address."),
    ] = ("key", "address")
