"""Timeouts, retries and circuit breakers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.config.nested import formerly

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Share = Annotated[float, Meta(gt=0, le=1)]
Unsupported = Literal["drop_hints", "drop", "refuse"]
"""What becomes of parameters that a target does not support."""


class TimeoutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in seconds. first_token_s ends with the first content, where idle_s begins; total_s
    ends with the last byte."""

    connect_s: Annotated[Seconds, Meta(description="To open a connection, TLS included.")] = 5.0
    first_token_s: Annotated[
        Seconds,
        Meta(
            description="From the request to the first content; without a stream, to the end of "
            "the reply."
        ),
    ] = 300.0
    idle_s: Annotated[
        Seconds, Meta(description="Between two pieces of a stream, from its first content on.")
    ] = 60.0
    total_s: Annotated[Seconds, Meta(description="For one request, with all its attempts.")] = (
        1800.0
    )


class ErrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The detail of failures that clients read. The ledger, the log, the admin page and the master
    key always have the whole message."""

    detail: Annotated[
        Literal["full", "names", "none"] | None,
        Meta(
            description="What a client reads of a failure that its request did not cause: `full` "
            "(targets, addresses, each provider's message), `names` (each target, and the kind of "
            "its failure) or `none` (the kind alone). Null is `none` for clients with a key, and "
            "`full` where no key is required."
        ),
    ] = None


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Retries of one request. Moving on to another target needs no wait."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=20)] | None,
        Meta(
            description="Most attempts of one request, all targets and keys together, even if some "
            "targets are never tried. By default 4, or enough to try each target and "
            "fallback once; a target's further keys are then not counted, up to 20 attempts."
        ),
    ] = None
    same_target: Annotated[
        int,
        Meta(ge=1, le=10, description="Most attempts at one target, for failures that may pass."),
    ] = 2
    backoff_s: Annotated[
        Seconds, Meta(description="Wait before the second attempt at a target; doubles each time.")
    ] = 0.5
    backoff_max_s: Annotated[
        Seconds, Meta(description="Longest wait between attempts."), formerly("backoff_most_s")
    ] = 8.0
    jitter: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of a wait that is random, so that retries do not all come at once.",
        ),
    ] = 0.5


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The circuit breaker of a target: after too many failures it gets no requests for a while, and
    then a single probe."""

    share: Annotated[
        Share,
        Meta(description="Share of the window's attempts that must fail to open the breaker."),
    ] = 0.5
    window_s: Annotated[Seconds, Meta(description="Length of the window.")] = 30.0
    min_attempts: Annotated[
        int,
        Meta(ge=1, description="Attempts a window must have before the share counts."),
        formerly("least"),
    ] = 5
    cooldown_s: Annotated[
        Seconds, Meta(description="How long it stays open; doubles while the probe fails.")
    ] = 5.0
    cooldown_max_s: Annotated[
        Seconds, Meta(description="Longest time it stays open."), formerly("cooldown_most_s")
    ] = 120.0
