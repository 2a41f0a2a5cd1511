"""What a client is told of parameters that a target has no place for."""

from __future__ import annotations

from collections.abc import Sequence

# As most clients call what has another name inside.
_AS_ASKED = {"choices": "n", "output": "response_format", "reasoning": "reasoning_effort"}


def not_honoured(names: Sequence[str], *, may_drop: bool) -> str:
    """Why a target is not asked. may_drop: whether `drop_unsupported` would help."""
    asked = ", ".join(_AS_ASKED.get(one, one) for one in names)
    it = "it" if len(names) == 1 else "them"
    drop = ", or have `drop_unsupported: true` in the gateway's file do so" if may_drop else ""
    return f"it cannot honour {asked}; leave {it} out{drop}"
