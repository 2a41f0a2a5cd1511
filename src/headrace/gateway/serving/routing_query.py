"""The routing query of a request, with the policy of the caller's key."""

from __future__ import annotations

import hashlib

from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.held_bodies import key_of
from headrace.gateway.routing.query import RoutingQuery, query_from_body
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.told_responses import ToldResponse
from headrace.gateway.routing.variants import NOBODY
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prompt_salt import tenant_salt
from headrace.gateway.serving.stored_references import PREVIOUS, RESPONSES
from headrace.gateway.serving.who import SESSION_HEADERS, who_of
from headrace.http.large_bodies import LargeBodies
from headrace.protocol.dialects.token_count import MOST_TOKENS


async def query_for(incoming: Incoming, router: Router, large_bodies: LargeBodies) -> RoutingQuery:
    """The routing query of a request; a large body waits for its turn. Raises RequestError."""
    body = incoming.body

    def read() -> tuple[RoutingQuery, tuple[int, ...]]:
        found = query_from_body(body, incoming.model, by_prefix=router.has_prefixes)
        return found, _blocks(incoming, router) if router.has_engines else ()

    found, blocks = await large_bodies.result(key_of(incoming.caller), len(body.body), read)
    session = next(
        (incoming.headers[name] for name in SESSION_HEADERS if name in incoming.headers), None
    )
    if session is None:
        user = body.decoded("user")
        session = user if isinstance(user, str) else None
    if session is not None:
        key = "" if incoming.caller is None else incoming.caller.key_id
        session = _session_key(key, session)
    policy = DataPolicy() if incoming.caller is None else incoming.caller.data_policy
    continued = _continued(incoming, router)
    earlier_tokens = 0 if continued is None else continued.tokens or 0
    return found._replace(
        # The provider reads the earlier turns again and bills them.
        input_tokens=min(found.input_tokens + earlier_tokens, MOST_TOKENS),
        continued=continued,
        session=session,
        regions=policy.regions,
        no_retention=policy.zero_retention,
        keeps_no_data=policy.data_collection == "deny",
        priority=0 if incoming.caller is None else incoming.caller.priority,
        who=who_of(incoming) if router.has_variants else NOBODY,
        blocks=blocks,
        hears_names=incoming.caller is None or not incoming.caller.allowed_models,
    )


def _continued(incoming: Incoming, router: Router) -> ToldResponse | None:
    if incoming.side.name != RESPONSES or PREVIOUS not in incoming.body:
        return None
    previous = incoming.body.decoded(PREVIOUS)
    return router.told_responses.find(previous) if isinstance(previous, str) else None


def _session_key(key: str, session: str) -> str:
    """A short key for a session. Stored for many sessions and sent to other processes, so its
    length does not depend on the client; sessions of two keys never coincide."""
    of_both = f"{key}|{session}".encode(errors="surrogatepass")
    return hashlib.blake2b(of_both, digest_size=16).hexdigest()


def _blocks(incoming: Incoming, router: Router) -> tuple[int, ...]:
    from headrace.gateway.routing.prompt_blocks import prompt_blocks

    # What one tenant sent must not lead the requests of another.
    salt = tenant_salt(incoming.caller, router.prompt_cache_scope)
    return prompt_blocks(incoming.body, salt or "")
