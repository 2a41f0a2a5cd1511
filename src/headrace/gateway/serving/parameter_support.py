"""Whether a target may be tried that does not support all parameters of a request."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import RequestError
from headrace.gateway.settings.reliability import Unsupported
from headrace.protocol.neutral.losses import Losses

TRANSLATION = "translation"
"""The code of an error about what no other dialect has at all."""


class UntranslatableError(RequestError):
    """A valid request that one target's dialect cannot express; another target may."""


def untranslatable(error: RequestError) -> UntranslatableError:
    """A dialect's error about a valid request."""
    return UntranslatableError(str(error), param=error.param, code=error.code)


def why_skipped(losses: Losses, policy: Unsupported, *, require_parameters: bool) -> str | None:
    """Why a target with these losses is skipped; None if it may be tried.

    `require_parameters` is the client's wish, which goes before the policy of the file.
    """
    if not losses.all:
        return None
    if require_parameters:
        it = _it(losses.all)
        return (
            f"it does not support {', '.join(losses.all)}, and provider.require_parameters is "
            f"true; omit {it}, or set provider.require_parameters to false"
        )
    if policy == "refuse":
        return f"it does not support {', '.join(losses.all)}; omit {_it(losses.all)}"
    if policy == "drop_hints" and losses.meaning:
        return f"it does not support {', '.join(losses.meaning)}; omit {_it(losses.meaning)}"
    return None


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
