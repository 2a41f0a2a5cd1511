"""What is written down of a request beside its reply, and what shows without reading that."""

from __future__ import annotations

from headrace.bench.client.decode import Asked
from headrace.bench.client.raw import RawReply
from headrace.bench.load.schedule import Send
from headrace.bench.record import Failure, RequestRecord


def asked_of(send: Send, index: int, intended_ns: int) -> Asked:
    """What the run knows of a request; intended_ns from the start of the run."""
    item = send.item
    return Asked(
        index=index,
        intended_ns=intended_ns,
        measured=send.measured,
        session=None if item.session is None else send.conversation,
        turn=send.turn,
        prompt_tokens_asked=item.prompt_tokens_asked,
        output_tokens_asked=item.output_tokens_asked,
    )


def unsent_record(asked: Asked, end_ns: int) -> RequestRecord:
    """Of a request that was due, and that the end of the run kept from being sent."""
    return RequestRecord(
        index=asked.index,
        measured=asked.measured,
        intended_ns=asked.intended_ns,
        end_ns=end_ns,
        failure=Failure("cancelled", "the run ended before it was sent"),
        session=asked.session,
        turn=asked.turn,
        prompt_tokens_asked=asked.prompt_tokens_asked,
        output_tokens_asked=asked.output_tokens_asked,
    )


# Of the key, the path or the model, which all requests share. A 403 may be about one prompt.
_STATUSES_FOR_ALL = frozenset({401, 404, 405})


def fails_for_all(raw: RawReply) -> bool:
    """Whether every other request would fail the same way."""
    return raw.failure is None and raw.status in _STATUSES_FOR_ALL


def fails_visibly(raw: RawReply) -> bool:
    """Whether it failed, as far as shows without its body; the end of the run is no failure."""
    if raw.failure is not None:
        return raw.failure.kind != "cancelled"
    if raw.status is None:
        return True
    return not 200 <= raw.status < 300 or "html" in raw.headers.get("content-type", "").lower()
