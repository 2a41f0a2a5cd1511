"""Requests that wait for a target that has as many as it may have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.gateway.settings.reliability import Seconds


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The queue for requests whose targets have all reached `max_in_flight`: by the priority of
    the key, then by arrival. With several workers each has a queue of its own."""

    max_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Most requests that wait; one more is refused, or takes the place of one "
            "with a "
            "lower priority.",
        ),
        formerly("most"),
    ] = 100
    wait_s: Annotated[
        Seconds, Meta(description="How long a request waits before it is refused.")
    ] = 30.0
