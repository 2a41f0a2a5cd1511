"""Whether a caller may use what a provider stores: what others stored there is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import RequestError, shown
from headrace.gateway.access import ADMIN, MASTER, check_models
from headrace.protocol.neutral.event import Began

if TYPE_CHECKING:
    from headrace.gateway.routing.ask import Ask
    from headrace.gateway.serving.attempt import Opened
    from headrace.gateway.serving.incoming import Incoming
    from headrace.gateway.serving.serving import Serving

_TELLS = "openai-responses"
CODE = "stored_id_not_allowed"


async def check_asked(serving: Serving, incoming: Incoming, ask: Ask) -> None:
    """Whether the caller may ask for these models, with these ids. Raises ModelNotAllowedError,
    RequestError."""
    check_models(incoming.caller, ask.wanted.models, serving.router)
    if serving.stored_ids is not None:
        await check_stored(serving, incoming)


async def check_stored(serving: Serving, incoming: Incoming) -> None:
    """Refuses ids that the caller's key was not told by this gateway. Raises RequestError."""
    stored_ids, caller = serving.stored_ids, incoming.caller
    if stored_ids is None or caller is None or caller is MASTER or caller is ADMIN:
        return
    from headrace.gateway.serving.stored_references import PREVIOUS, stored_references

    for field, stored_id in stored_references(incoming.side.name, incoming.body):
        if field == PREVIOUS and await stored_ids.was_told(caller.key_id, stored_id):
            continue
        why = "was not told to this key" if field == PREVIOUS else "may be another key's"
        raise RequestError(
            f"{field}: {shown(stored_id)} is stored at the provider and {why}; send the content "
            "itself, or have an administrator set access.stored_ids to any",
            param=field,
            code=CODE,
        )


async def tell_stored(serving: Serving, incoming: Incoming, opened: Opened) -> None:
    """Before an answer goes out: its id is the caller's to use."""
    stored_ids, caller = serving.stored_ids, incoming.caller
    if stored_ids is None or caller is None or incoming.side.name != _TELLS:
        return
    if opened.ready.passed_on:  # else the provider's id is not told
        began = (one.id for one in opened.events if isinstance(one, Began))
        stored_id = next(began, "") if opened.body is None else opened.read().id
        if stored_id:
            await stored_ids.tell(caller.key_id, stored_id)
