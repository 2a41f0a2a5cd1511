"""The person or session a request comes from, by which it is assigned to a variant."""

from __future__ import annotations

from headrace.gateway.routing.variants import HEADER, Who, user_of
from headrace.gateway.serving.incoming import Incoming

SESSION_HEADERS = ("x-session-id", "x-headrace-session")


def who_of(incoming: Incoming) -> Who:
    """The origin of a request; the user is that of the body, else of the key."""
    headers, caller = incoming.headers, incoming.caller
    user = user_of(incoming.body)
    if user is None and caller is not None:
        user = caller.user
    return Who(
        user=user,
        session=next((headers[name] for name in SESSION_HEADERS if name in headers), None),
        key=None if caller is None else caller.key_id,
        request=incoming.id,
        chosen=headers.get(HEADER),
        tags=() if caller is None else caller.tags,
    )
