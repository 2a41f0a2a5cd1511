"""Records a whole answer in the request log."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from headrace.errors import RequestError
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.serving.error_detail import ErrorDetail
from headrace.gateway.serving.refusals import refused
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.gateway.serving.told_error import error_body
from headrace.protocol.neutral.dialect import ClientSide

if TYPE_CHECKING:
    from headrace.gateway.request_log.visit import PostVisit

Header = tuple[str, str]
Told = tuple[bytes, list[Header]]
"""The body and headers of a 200."""


async def logged(
    answer: Awaitable[Told],
    visit: PostVisit,
    side: ClientSide,
    request_id: str,
    detail: ErrorDetail,
) -> Told:
    """Return the answer and record it as the client gets it, or the error instead; if the client
    left, the request alone. Raises what `answer` does."""
    try:
        reply = await answer
        visit.told(reply[0])
        return reply
    except (RequestError, AccountsError, AllTargetsFailedError) as error:
        status, failure, _ = refused(error, side.name, detail)
        visit.told(error_body(side, failure, status, request_id))
        raise
    finally:
        visit.ended()
