"""Whether a caller may use objects stored at a provider: those of other keys are off limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import RequestError, shown
from headrace.gateway.access import check_models
from headrace.gateway.accounts.caller import ADMIN, MASTER
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
"""Distinct ids that one request may name: far more than items that fit into a context. Each is
looked up before any limit of the key counts the request."""

_ANTHROPIC = "anthropic"


async def check_asked(serving: Serving, incoming: Incoming, ask: RoutingQuery) -> None:
    """Check that the caller may use these models and ids. Raises ModelNotAllowedError,
    RequestError, StoresDownError."""
    check_models(incoming.caller, ask.wanted.models, serving.router)
    if serving.stored_ids is not None:
        await check_stored(serving, incoming)


async def check_stored(serving: Serving, incoming: Incoming) -> None:
    """Refuse ids that this gateway has not sent to the caller's key. Raises RequestError, and
    StoresDownError if they cannot be looked up."""
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
            raise _refused(field, stored_id, "may belong to another key")
        if len(wanted) + len(copied) > MOST_IDS:
            raise _too_many(field, stored_id)
    told = await stored_ids.told(caller.key_id, wanted) if wanted else ()
    for stored_id, field in wanted.items():
        if stored_id not in told:
            raise _refused(field, stored_id, "was not created with this key")
    for stored_id in await stored_ids.of_others(caller.key_id, copied) if copied else ():
        raise _refused(COPIED, stored_id, "belongs to another key")


def _refused(field: str, stored_id: str, why: str) -> RequestError:
    return RequestError(
        f"{field}: {shown(stored_id)} is stored at the provider and {why}; send the content "
        "itself, or have an administrator set access.stored_ids to any",
        param=field,
        code=CODE,
    )


def _too_many(field: str, stored_id: str) -> RequestError:
    return RequestError(
        f"{field}: {shown(stored_id)} is one too many: a request may name {MOST_IDS:,} ids of "
        "objects stored at the provider; send the content itself, or continue from a "
        "response with previous_response_id",
        param=field,
        code="too_many_stored_ids",
    )


def telling(serving: Serving, incoming: Incoming, opened: Opened, sink: Sink, tally: Tally) -> Sink:
    """The sink for an answer. If it may contain ids, the sink registers them for the caller before
    they go out, and records where a response is stored and what it has used so far."""
    # A translated answer does not contain the provider's ids.
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
    """Whether an answer may contain ids. Anthropic stores containers only, for code execution."""
    if incoming.side.name == _ANTHROPIC:
        return "container" in incoming.body or b"code_execution" in incoming.body.body
    return incoming.side.name == RESPONSES
