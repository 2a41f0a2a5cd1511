"""Requests that wait for a target that has as many as it may have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly
from headrace.gateway.settings.reliability import Seconds


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where all targets of a request have `max_in_flight`, it waits, by its key's priority and
    then by its arrival; of several workers each has a queue."""

    max_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Most requests that wait; one more is refused, or takes the place of one "
            "of a lower priority.",
        ),
        formerly("most"),
    ] = 100
    wait_s: Annotated[Seconds, Meta(description="How long one waits before it is refused.")] = 30.0
