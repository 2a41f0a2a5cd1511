"""Limits of what costs nothing, and of who has no key."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**60)]


class FreeTierSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of requests that are served free of charge, as OpenRouter has them."""

    rpm: Annotated[Count | None, Meta(description="Requests in any minute.")] = 20
    rpd: Annotated[Count | None, Meta(description="Requests in a day of UTC.")] = 50
    per: Annotated[
        tuple[Literal["key", "address"], ...],
        Meta(min_length=1, description="What each has limits of its own: keys, addresses."),
    ] = ("key", "address")
