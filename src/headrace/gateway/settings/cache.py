"""Answers that are given again to the same request."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError
from headrace.gateway.settings.provider import Text

CacheScope = Literal["key", "team", "organisation", "all"]


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The exact cache: the same request of the same caller gets the answer it had before."""

    enabled: Annotated[bool, Meta(description="Whether answers are kept at all.")] = False
    models: Annotated[
        tuple[Text, ...],
        Meta(description="Models whose answers are kept, by names and globs of what is asked for."),
    ] = ("*",)
    all: Annotated[
        bool,
        Meta(
            description="Whether answers are kept of every request, as LiteLLM and Helicone do; "
            "otherwise of those with temperature 0 or a seed."
        ),
    ] = False
    scope: Annotated[
        CacheScope,
        Meta(
            description="Who shares answers: those of one key, team or organisation, or everybody "
            "(whoever asks the same then learns that it was asked before)."
        ),
    ] = "key"
    ttl_s: Annotated[
        float, Meta(gt=0, le=366 * 86_400, description="How old an answer may be, in seconds.")
    ] = 3600.0
    store: Annotated[
        Literal["memory", "sqlite"],
        Meta(description="Where they are: in each process, or in a file."),
    ] = "memory"
    path: Annotated[
        Text | None,
        Meta(description="The file of `store: sqlite`, from the folder of gateway.yaml on."),
    ] = None
    most_bytes: Annotated[
        int,
        Meta(
            ge=2**16,
            description="What they may take. In memory those go that were asked for longest ago, "
            "in a file those that were kept first.",
        ),
    ] = 256 * 2**20

    def __post_init__(self) -> None:
        if self.store == "sqlite" and self.path is None:
            raise ConfigError("path: `store: sqlite` needs a file; name one (path: cache.db)")
        if self.store != "sqlite" and self.path is not None:
            raise ConfigError("path: only `store: sqlite` has a file; take one of the two out")
