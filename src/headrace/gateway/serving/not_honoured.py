"""The message about parameters that a target does not support."""

from __future__ import annotations

from collections.abc import Sequence

# Clients know these parameters by other names than the neutral ones.
_AS_ASKED = {"choices": "n", "output": "response_format", "reasoning": "reasoning_effort"}


def not_honoured(names: Sequence[str], *, may_drop: bool) -> str:
    """Why a target is skipped. `may_drop` says whether `drop_unsupported` would help."""
    shown_names = ", ".join(_AS_ASKED.get(name, name) for name in names)
    it = "it" if len(names) == 1 else "them"
    drop = ", or set `drop_unsupported: true` in the gateway's configuration" if may_drop else ""
    return f"it does not support {shown_names}; omit {it}{drop}"
