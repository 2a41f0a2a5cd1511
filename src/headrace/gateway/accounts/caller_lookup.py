"""A key by its id or label, neither of which is secret."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.config.load import nearest
from headrace.errors import RequestError, shown
from headrace.gateway.accounts.caller import Caller

_MOST_NAMED = 8


def caller_named(callers: Iterable[Caller], name: str) -> Caller:
    """The caller with this id, else with this label. Raises RequestError if there is none, or if
    several have the label."""
    by_id = {caller.key_id: caller for caller in callers}
    if name in by_id:
        return by_id[name]
    found = [one for one in by_id.values() if name and one.label == name]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(one.key_id for one in found[:_MOST_NAMED])
        more = ", ..." if len(found) > _MOST_NAMED else ""
        raise RequestError(
            f"{len(found)} keys have the label {shown(name)}; name one by its id: {ids}{more}",
            code="key_not_found",
        )
    known = [*by_id, *(one.label for one in by_id.values() if one.label)]
    raise RequestError(
        f"no key has the id or label {shown(name)}{nearest(name, known)}", code="key_not_found"
    )
