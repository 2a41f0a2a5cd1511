"""Whether a caller may use what a provider stores: what others stored there is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import RequestError, shown
from headrace.gateway.access import ADMIN, MASTER, check_models
from headrace.gateway.routing.told_responses import ToldResponse
from headrace.gateway.serving.stored_references import (
    COPIED,
    RESPONSES,
    TOLD,
    stored_references,
)

if TYPE_CHECKING:
    from headrace.gateway.routing.query import RoutingQuery
    from headrace.gateway.serving.attempt import Opened
    from headrace.gateway.serving.incoming import Incoming, Sink
    from headrace.gateway.serving.serving import Serving
    from headrace.gateway.serving.tally import Tally
    from headrace.gateway.serving.told_ids import ToldIds

CODE = "stored_id_not_allowed"
MOST_IDS = 2048
"""Of one request, each once: far more items than fit into a context. Each is hashed and looked up
before any limit of the key counts the request."""

_ANTHROPIC = "anthropic"


async def check_asked(serving: Serving, incoming: Incoming, ask: RoutingQuery) -> None:
    """Whether the caller may ask for these models, with these ids. Raises ModelNotAllowedError,
    RequestError, StoresDownError."""
    check_models(incoming.caller, ask.wanted.models, serving.router)
    if serving.stored_ids is not None:
        await check_stored(serving, incoming)


async def check_stored(serving: Serving, incoming: Incoming) -> None:
    """Refuses ids that the caller's key was not told by this gateway. Raises RequestError,
    StoresDownError where that cannot be looked up."""
    stored_ids, caller = serving.stored_ids, incoming.caller
    if stored_ids is None or caller is None or caller is MASTER or caller is ADMIN:
        return
    wanted: dict[str, str] = {}
    copied: set[str] = set()
    for field, stored_id in stored_references(incoming.side.name, incoming.body):
        if field == COPIED:
            copied.add(stored_id)
        elif field in TOLD:
            wanted.setdefault(stored_id, field)
        else:
            raise _refused(field, stored_id, "may be another key's")
        if len(wanted) + len(copied) > MOST_IDS:
            raise _too_many(field, stored_id)
    told = await stored_ids.told(caller.key_id, wanted) if wanted else ()
    for stored_id, field in wanted.items():
        if stored_id not in told:
            raise _refused(field, stored_id, "was not told to this key")
    for stored_id in await stored_ids.of_others(caller.key_id, copied) if copied else ():
        raise _refused(COPIED, stored_id, "was told to another key")


def _refused(field: str, stored_id: str, why: str) -> RequestError:
    return RequestError(
        f"{field}: {shown(stored_id)} is stored at the provider and {why}; send the content "
        "itself, or have an administrator set access.stored_ids to any",
        param=field,
        code=CODE,
    )


def _too_many(field: str, stored_id: str) -> RequestError:
    return RequestError(
        f"{field}: {shown(stored_id)} is one more than the {MOST_IDS:,} ids of what is stored at "
        "the provider that one request may name; send the content itself, or go on from a "
        "response with previous_response_id",
        param=field,
        code="too_many_stored_ids",
    )


def telling(serving: Serving, incoming: Incoming, opened: Opened, sink: Sink, tally: Tally) -> Sink:
    """The way back for an answer; where it may tell ids, one that makes them the caller's to use
    before they go out, and keeps where a response is stored and what it took so far."""
    # Of an answer that is written anew the provider's ids are not told.
    if not opened.ready.passed_on or not _may_tell(incoming):
        return sink
    stored_ids, caller = serving.stored_ids, incoming.caller
    if caller is None or caller is MASTER or caller is ADMIN:
        stored_ids = None
    is_response = incoming.side.name == RESPONSES
    if stored_ids is None and not is_response:
        return sink
    from headrace.gateway.serving.telling_sink import TellingSink

    is_stored = is_response and incoming.body.value("store") != b"false"
    told_responses = serving.router.told_responses
    target = opened.candidate.target.name

    async def tell(ids: ToldIds) -> None:
        stored = ids.stored if is_stored else ()
        if stored:
            usage, _ = tally.usage
            tokens = usage.prompt_tokens + usage.completion_tokens
            told_responses.told(stored[0], ToldResponse(target, tokens))
        if stored_ids is not None and caller is not None and (stored or ids.containers):
            await stored_ids.tell(caller.key_id, stored, with_owner=ids.containers)

    return TellingSink(sink, tell)


def _may_tell(incoming: Incoming) -> bool:
    """Anthropic stores containers alone, for those who ask to run code in one."""
    if incoming.side.name == _ANTHROPIC:
        return "container" in incoming.body or b"code_execution" in incoming.body.body
    return incoming.side.name == RESPONSES
