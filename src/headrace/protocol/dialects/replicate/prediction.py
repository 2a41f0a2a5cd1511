"""Predictions, as Replicate reports them at each stage."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from headrace.protocol.dialects.status_failure import says, short
from headrace.protocol.dialects.token_count import reported_tokens
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.failure import Failure, FailureKind
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage

FAILED = ("failed", "canceled", "aborted")
_ID_CHARACTERS = 200

_POLICY = ("nsfw", "flagged as sensitive", "safety checker", "content policy", "(e005)")
_TOO_LONG = ("context length", "context window", "prompt length", "input length", "too many tokens")
_BUSY = ("please retry", "try again later", "queue is full", "capacity")


class Prediction(msgspec.Struct, frozen=True):
    """A prediction, as Replicate reports it."""

    id: str
    status: str
    """"starting", "processing", "succeeded", or one of FAILED."""
    model: str = ""
    output: Any = None
    """A growing list of texts, a text, or whatever models other than language models return."""
    error: Any = None
    metrics: Any = None
    created_at: str | None = None
    urls: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The answer so far; raises DamagedReplyError for output that is not text."""
        output = self.output
        if output is None:
            return ""
        if isinstance(output, str):
            return output
        if isinstance(output, list) and all(isinstance(piece, str) for piece in output):
            return "".join(output)
        raise DamagedReplyError("the prediction's output is neither a text nor a list of texts")

    @property
    def usage(self) -> TokenUsage | None:
        """The usage; None if the model counts no tokens; it is then billed by time."""
        told = self.metrics if isinstance(self.metrics, dict) else {}
        counts = reported_tokens(told, "input_token_count", "output_token_count")
        if counts is None:
            return None
        return TokenUsage(input_tokens=counts[0], output_tokens=counts[1])

    @property
    def created_s(self) -> int | None:
        """Unix time."""
        try:
            time = datetime.fromisoformat(self.created_at or "")
            return None if time.tzinfo is None else int(time.timestamp())
        except (ValueError, OverflowError):
            return None

    @property
    def stream_url(self) -> str | None:
        """The address of the stream, if the model supports streaming."""
        url = (self.urls or {}).get("stream")
        return url if isinstance(url, str) else None


_PREDICTION = msgspec.json.Decoder(Prediction)


def read_prediction(body: bytes) -> Prediction:
    """Raises DamagedReplyError if it is none."""
    try:
        prediction = _PREDICTION.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedReplyError(f"not a prediction: {error}") from None
    id = prediction.id
    if not (0 < len(id) <= _ID_CHARACTERS and id.isascii() and id.replace("-", "").isalnum()):
        raise DamagedReplyError("the prediction has no valid id")
    return prediction


def read_reply(body: bytes) -> ChatReply:
    """The reply. Raises DamagedReplyError for a prediction that did not succeed, or not yet.

    Replicate does not report why an answer ended: finish is "stop" even if it was cut at its limit.
    """
    prediction = read_prediction(body)
    if prediction.status in FAILED:
        failure = failed(prediction)
        raise DamagedReplyError(f"the prediction failed: {failure.message}", failure)
    if prediction.status != "succeeded":
        raise DamagedReplyError(f"the prediction is {prediction.status[:40]!r} and not done")
    return reply_of(prediction)


def reply_of(prediction: Prediction) -> ChatReply:
    """The answer of a prediction that succeeded."""
    text = prediction.text
    metrics = prediction.metrics
    return ChatReply(
        dialect="replicate",
        id=prediction.id,
        model=prediction.model,
        choices=(Choice(parts=(Text(text=text),) if text else (), finish="stop"),),
        usage=prediction.usage,
        created_s=prediction.created_s,
        extra={"replicate": {"metrics": metrics}} if isinstance(metrics, dict) else {},
    )


def failed(prediction: Prediction) -> Failure:
    """Why a prediction gave no answer; its requests had a status of 200 or 201."""
    error = prediction.error
    if not isinstance(error, str) or not error:
        error = f"the prediction was {prediction.status[:40]} without a reason"
    return Failure(kind=error_kind(error), message=short(error))


def error_kind(error: str) -> FailureKind:
    """The kind by the text of a model's error; most are faults of its code or machine."""
    words = error.lower()
    if says(words, _POLICY):
        return "content_policy"
    if says(words, _TOO_LONG):
        return "context_length"
    if says(words, _BUSY):
        return "overloaded"
    return "server"
