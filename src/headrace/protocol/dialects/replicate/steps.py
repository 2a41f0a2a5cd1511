"""An answer of Replicate's takes several requests; this says which, one after another.

    steps = ReplicateSteps(call, model)
    while (ask := steps.next_request()) is not None:
        wait ask.after_s; send ask to ask.url, or to the provider's base URL and ask.path
        if ask.streams and the status is 200:
            events += steps.feed(piece) for each piece of the body, then steps.end_of_body()
        else:
            events += steps.take(status, headers, body)

Events are those of one stream and keep its grammar, whether the call wants a stream or not; where
it does not, `neutral.collect.collected` makes the reply of them. After a ReplyEnd or
ReplyFailure there is no next request. When no client waits for the reply any more, `cancel_request`
stops it, and with it the cost.

    create --> succeeded or failed (Prefer: wait)                        --> over
           --> still running, streams    --> stream --> get, for usage   --> over
           --> still running, does not   --> get, again and again        --> over

Pure: no clock and no sockets. How long it may take in all is the driver's business.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from headrace.protocol.dialects.replicate.failures import read_failure
from headrace.protocol.dialects.replicate.prediction import (
    FAILED,
    Prediction,
    failed,
    read_prediction,
    reply_of,
)
from headrace.protocol.dialects.replicate.stream_reader import ReplicateStreamReader
from headrace.protocol.dialects.replicate.write_call import write_call
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.dialect import DamagedReplyError, Headers
from headrace.protocol.neutral.event import Event, ReplyEnd, ReplyFailure, ReplyStart, ReplyUsage
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.steps import ProviderRequest

STREAM_HOSTS = ("replicate.com", "replicate.net")
"""Whose subdomains a stream may lie at: the key goes along, and a reply says where."""

_FIRST_PAUSE_S = 0.5
_PAUSE_GROWTH = 1.5
_LONGEST_PAUSE_S = 5.0
# The usage is told a moment after the last word; nobody waits long for it.
_USAGE_TRIES = 3
# A prediction runs on while its address answers badly; asking for another would be paid twice.
_POLL_FAILURES = 3
_USAGE_PAUSE_S = 0.2


_Stage = Literal["create", "stream", "poll", "usage", "over"]


class ReplicateSteps:
    """The sequence of requests for one answer.

    dropped: of the call, as in EncodedRequest. own_origin: scheme and host of the provider's
    address, to which the key is sent anyway.
    """

    def __init__(
        self,
        call: ChatCall,
        model: str,
        max_tokens_input: str = "max_tokens",
        stream_hosts: tuple[str, ...] = STREAM_HOSTS,
        own_origin: str = "",
    ) -> None:
        written = write_call(call, model, max_tokens_input)
        self.dropped = written.dropped
        self._call = call
        self._model = model
        self._stream_hosts = stream_hosts
        self._own_origin = own_origin
        self._stage: _Stage = "create"
        self._create = ProviderRequest("POST", written.path, written.headers, written.body)
        self._prediction: Prediction | None = None
        self._reader: ReplicateStreamReader | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._tries = 0
        self._poll_failures = 0
        self._is_settled = False

    def next_request(self) -> ProviderRequest | None:
        """The next request; None when the answer is complete. Repeated calls give the same."""
        prediction = self._prediction
        if self._stage == "create":
            return self._create
        if self._stage == "over" or prediction is None:
            return None
        if self._stage == "stream":
            headers = {"accept": "text/event-stream", "cache-control": "no-store"}
            return ProviderRequest("GET", "", headers, url=prediction.stream_url, streams=True)
        after_s = self._pause_s if self._stage == "poll" else _USAGE_PAUSE_S * self._tries
        return ProviderRequest(
            "GET", self._path(prediction), {"accept": "application/json"}, after_s=after_s
        )

    def cancel_request(self) -> ProviderRequest | None:
        """The request that stops a prediction that is or may be running; None if none is."""
        if self._prediction is None or self._is_settled:
            return None
        return ProviderRequest("POST", f"{self._path(self._prediction)}/cancel", {})

    def take(self, status: int, headers: Headers, body: bytes) -> list[Event]:
        """A reply that was read whole: a prediction, or an error instead of it."""
        if self._stage == "over":
            return []
        if self._stage == "usage":
            return self._take_usage(status, body)
        if self._stage == "stream":
            # The stream is gone, which happens to old ones; the answer can still be got.
            self._stage = "poll"
            return []
        if status not in (200, 201, 202):
            return self._take_failure(read_failure(status, headers, body))
        try:
            return self._take_prediction(read_prediction(body))
        except DamagedReplyError as error:
            return self._fail_as("damaged", str(error))

    def feed(self, piece: bytes) -> list[Event]:
        """A piece of a stream's body."""
        if self._stage != "stream":
            return []
        return self._watched(self._stream().feed(piece))

    def end_of_body(self) -> list[Event]:
        """After the last piece; the stream may be left before it, as soon as its stage is past."""
        if self._stage != "stream":
            return []
        return self._watched(self._stream().end())

    def _take_prediction(self, prediction: Prediction) -> list[Event]:
        if self._prediction is not None and prediction.id != self._prediction.id:
            return self._fail_as(
                "damaged", "the reply is about another prediction than the one requested"
            )
        is_new = self._prediction is None
        self._prediction = prediction
        self._poll_failures = 0
        if prediction.status in FAILED:
            self._is_settled = True
            return self._fail(failed(prediction))
        if prediction.status == "succeeded":
            self._is_settled = True
            reply = reply_of(prediction)
            self._stage = "over"
            return list(replayed(reply))
        if is_new and self._call.stream and self._may_stream(prediction):
            self._stage = "stream"
        elif is_new:
            self._stage = "poll"
        else:
            self._pause_s = min(self._pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)
        return []

    def _take_failure(self, failure: Failure) -> list[Event]:
        self._poll_failures += 1
        passes = failure.kind in ("overloaded", "rate_limit", "server", "timeout")
        if self._stage == "poll" and passes and self._poll_failures <= _POLL_FAILURES:
            self._pause_s = min(max(self._pause_s, failure.retry_after_s or 0), _LONGEST_PAUSE_S)
            return []
        return self._fail(failure)

    def _take_usage(self, status: int, body: bytes) -> list[Event]:
        """The answer is there: without its usage it is still one."""
        self._tries += 1
        usage = None
        is_running = False
        try:
            prediction = read_prediction(body) if status == 200 else None
        except DamagedReplyError:
            prediction = None
        if prediction is not None:
            usage = prediction.usage
            is_running = prediction.status in ("starting", "processing")
        if usage is None and is_running and self._tries < _USAGE_TRIES:
            return []
        self._stage = "over"
        return [*([] if usage is None else [ReplyUsage(usage=usage)]), ReplyEnd()]

    def _stream(self) -> ReplicateStreamReader:
        if self._reader is None:
            told = self._prediction
            id, created_s = ("", None) if told is None else (told.id, told.created_s)
            began = ReplyStart(id=id, model=self._model, created_s=created_s)
            self._reader = ReplicateStreamReader(began, at_end=())
        return self._reader

    def _watched(self, events: list[Event]) -> list[Event]:
        if self._stream().is_over:
            ended_badly = bool(events) and isinstance(events[-1], ReplyFailure)
            self._stage = "over" if ended_badly else "usage"
            self._is_settled = not ended_badly
        return events

    def _may_stream(self, prediction: Prediction) -> bool:
        try:
            address = urlsplit(prediction.stream_url or "")
            host, has_user = address.hostname or "", address.username is not None
        except ValueError:
            return False
        if f"{address.scheme}://{address.netloc}" == self._own_origin:
            return True
        known = any(host == name or host.endswith(f".{name}") for name in self._stream_hosts)
        return address.scheme == "https" and known and not has_user

    def _path(self, prediction: Prediction) -> str:
        # Made of the id alone: an address that a reply tells could lie anywhere.
        return f"/v1/predictions/{prediction.id}"

    def _fail_as(self, kind: FailureKind, message: str) -> list[Event]:
        return self._fail(Failure(kind=kind, message=message))

    def _fail(self, failure: Failure) -> list[Event]:
        self._stage = "over"
        return [ReplyFailure(failure)]
