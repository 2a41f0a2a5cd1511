"""Settings as they may be shown: secrets say only that they are there."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.config.flags import flags_of

HIDDEN = "********"


def masked(config: msgspec.Struct) -> dict[str, Any]:
    """The values of a config struct by name, those of secret settings hidden.

    An absent or empty secret stays what it is, so that one sees whether it is set.
    """
    shown: dict[str, Any] = {}
    for flag in flags_of(type(config)):
        value = getattr(config, flag.name)
        if flag.secret and value:
            value = tuple(HIDDEN for _ in value) if flag.repeated else HIDDEN
        shown[flag.name] = value
    return shown
