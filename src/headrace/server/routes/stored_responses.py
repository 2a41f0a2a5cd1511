"""/v1/responses/{id}: responses that are stored, for the key that made them alone."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headrace.errors import RequestError, shown
from headrace.server.api_error import ApiError
from headrace.server.call import Call
from headrace.server.responses_store.rows import Items, TooLongError

MOST_ITEMS = 100
_DEFAULT_ITEMS = 20


class _WithId(msgspec.Struct):
    id: str = ""


async def get_response(call: Call) -> Response:
    """The response object as it was answered."""
    id = _id(call)
    if call.http.query_params.get("stream") not in (None, "false"):
        raise RequestError(
            "stream: the events of a stored response are not kept; omit it",
            param="stream",
            code="unsupported",
        )
    body = await call.state.responses_store.body(id, call.owner)
    if body is None:
        raise _missing(id)
    return Response(body, media_type="application/json")


async def delete_response(call: Call) -> Response:
    """Forget a response; those that continue it keep what it said."""
    id = _id(call)
    if not await call.state.responses_store.delete(id, call.owner):
        raise _missing(id)
    body = msgspec.json.encode({"id": id, "object": "response", "deleted": True})
    return Response(body, media_type="application/json")


async def cancel_response(call: Call) -> Response:
    """A refusal: only a response in the background could be cancelled, and there are none."""
    id = _id(call)
    if await call.state.responses_store.body(id, call.owner) is None:
        raise _missing(id)
    raise ApiError(
        400,
        f"{shown(id)} has ended: only background responses can be cancelled, and none are made "
        "here; close the connection to end one that is being answered",
        code="unsupported",
    )


async def list_input_items(call: Call) -> Response:
    """What a response was given, with all that it continues, in pages."""
    id = _id(call)
    limit, order, after = _page(call)
    store, most = call.state.responses_store, call.state.config.max_body_bytes
    try:
        items = await store.input_items(id, call.owner, most)
    except TooLongError as error:
        raise ApiError(400, f"{shown(id)}: {error}", code="conversation_too_long") from None
    if items is None:
        raise _missing(id)
    page, has_more = _page_of(items, limit, order, after)
    ids = [_item_id(item) for item in page[:1] + page[-1:]]
    body = msgspec.json.encode(
        {
            "object": "list",
            "data": page,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": has_more,
        }
    )
    return Response(body, media_type="application/json")


def _page_of(items: Items, limit: int, order: str, after: str | None) -> tuple[Items, bool]:
    """The items of a page, and whether there are more. Raises RequestError for an unknown
    `after`."""
    ordered = items if order == "asc" else items[::-1]
    start = 0
    if after is not None:
        ids = [_item_id(item) for item in ordered]
        if after not in ids:
            raise RequestError(f"after: there is no item {shown(after)}", param="after")
        start = ids.index(after) + 1
    return ordered[start : start + limit], len(ordered) > start + limit


def _page(call: Call) -> tuple[int, str, str | None]:
    query = call.http.query_params
    limit, order = query.get("limit", str(_DEFAULT_ITEMS)), query.get("order", "desc")
    is_number = limit.isascii() and limit.isdecimal() and len(limit) < 4
    if not is_number or not 1 <= int(limit) <= MOST_ITEMS:
        raise RequestError(
            f"limit: {shown(limit)} is not between 1 and {MOST_ITEMS}", param="limit"
        )
    if order not in ("asc", "desc"):
        raise RequestError(f"order: {shown(order)} is neither asc nor desc", param="order")
    return int(limit), order, query.get("after")


def _item_id(item: msgspec.Raw) -> str:
    return msgspec.json.decode(item, type=_WithId).id


def _id(call: Call) -> str:
    id: str = call.http.path_params["response_id"]
    return id


def _missing(id: str) -> ApiError:
    return ApiError(404, f"Response with id {shown(id)} not found.", code="response_not_found")
