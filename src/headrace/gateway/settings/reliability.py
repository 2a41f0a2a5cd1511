"""How long to wait, how often to try, and when to leave a target alone."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Share = Annotated[float, Meta(gt=0, le=1)]


class TimeoutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds. first_token_s ends with the first content and idle_s begins there; total_s ends
    with the last byte."""

    connect_s: Annotated[Seconds, Meta(description="To have a connection, TLS included.")] = 5.0
    first_token_s: Annotated[
        Seconds,
        Meta(description="From the request to the first content; without a stream, to the end of "
             "the reply."),
    ] = 300.0  # fmt: skip
    idle_s: Annotated[
        Seconds, Meta(description="Between two pieces of a stream, from its first content on.")
    ] = 60.0
    total_s: Annotated[Seconds, Meta(description="For one request, with all its attempts.")] = (
        1800.0
    )


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often one request is tried. Going on to another target needs no wait."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=20)] | None,
        Meta(
            description="Most attempts of one request, all targets and keys together, though "
            "targets be left unasked. Where it is not said, 4, or as many as there are targets "
            "and fallbacks to ask once each; other keys of a target are not counted then, up to "
            "20 attempts."
        ),
    ] = None
    same_target: Annotated[
        int,
        Meta(ge=1, le=10, description="Most attempts at one target, for what a moment can mend."),
    ] = 2
    backoff_s: Annotated[
        Seconds, Meta(description="Before the second attempt at a target; doubles each time.")
    ] = 0.5
    backoff_most_s: Annotated[Seconds, Meta(description="Longest wait between attempts.")] = 8.0
    jitter: Annotated[
        float,
        Meta(ge=0, le=1, description="Share of a wait that is random, so that not all come back "
             "at once."),
    ] = 0.5  # fmt: skip


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A target that fails too often is left alone for a while, then tried with one request."""

    share: Annotated[
        Share, Meta(description="Of the window's attempts; so many failures open the breaker.")
    ] = 0.5
    window_s: Annotated[Seconds, Meta(description="What is looked back at.")] = 30.0
    least: Annotated[
        int, Meta(ge=1, description="Attempts a window must have before the share counts.")
    ] = 5
    cooldown_s: Annotated[
        Seconds, Meta(description="How long it stays open; doubles while the probe fails.")
    ] = 5.0
    cooldown_most_s: Annotated[Seconds, Meta(description="Longest of these.")] = 120.0
