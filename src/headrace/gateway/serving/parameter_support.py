"""Whether a target may be asked although it does not support all parameters of a request."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.gateway.settings.reliability import Unsupported
from headrace.protocol.neutral.losses import Losses


def why_skipped(losses: Losses, policy: Unsupported, *, require_parameters: bool) -> str | None:
    """Why a target with these losses is skipped; None if it may be asked.

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
