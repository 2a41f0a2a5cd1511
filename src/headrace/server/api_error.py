"""Failures as HTTP: which status and which error object each becomes.

Whatever is not foreseen is a 500 that tells the client nothing but the request's id; the log has
the traceback.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from headrace.engine.process.status import EngineStatus
from headrace.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineRestartingError,
    HeadraceError,
    RequestError,
    TemplateError,
)
from headrace.protocol.openai.error import INVALID_REQUEST, SERVER_ERROR, ErrorBody, ErrorDetail

logger = logging.getLogger(__name__)

MODEL_NOT_FOUND = "model_not_found"

# Names, paths and values of a request are parts of errors: what a client sends large must not come
# back large. Each is cut where it is written; this is the bound of those nobody thought of.
MAX_MESSAGE_CHARS = 2000
MAX_PARAM_CHARS = 200


# An engine loads for seconds or for minutes; asking costs little.
LOADING_RETRY_S = 1.0
# By then another server has taken this one's place, or a load balancer has seen /ready.
DRAINING_RETRY_S = 5.0


class ApiError(Exception):
    """A reply that is an error: its status, its body, and headers of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        n_prompt_tokens: int | UnsetType = UNSET,
        n_ctx: int | UnsetType = UNSET,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.detail = ErrorDetail(
            message=_cut(message, MAX_MESSAGE_CHARS),
            type=type,
            param=None if param is None else _cut(param, MAX_PARAM_CHARS),
            code=code,
            n_prompt_tokens=n_prompt_tokens,
            n_ctx=n_ctx,
        )

    @property
    def body(self) -> ErrorBody:
        """The JSON object for the wire."""
        return ErrorBody(self.detail)


def _cut(text: str, most: int) -> str:
    # A template's own words may hold half of a surrogate pair, which no reply can.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else text[: most - 1] + "…"


# nginx's status for a client that closed the connection before a reply: metrics and logs see it.
CLIENT_GONE = 499


class ClientGoneError(Exception):
    """The client closed the connection; nobody is left to answer."""


class GenerationError(HeadraceError):
    """The engine gave up on one request; others go on."""


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to try again: whole seconds, at least one."""
    return {"retry-after": str(max(1, math.ceil(seconds)))}


def unavailable(
    message: str,
    code: str,
    *,
    retry_after_s: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> ApiError:
    """A 503: the server is there, the engine is not (yet, now, or any more).

    retry_after_s: None where trying again has no use.
    """
    more = {} if retry_after_s is None else retry_after(retry_after_s)
    return ApiError(503, message, type=SERVER_ERROR, code=code, headers={**more, **(headers or {})})


def model_is_loading() -> ApiError:
    """What is said before there is a model."""
    message = "the model is loading; try again in a moment"
    return unavailable(message, code="loading", retry_after_s=LOADING_RETRY_S)


def server_is_ending() -> ApiError:
    """What new requests are told while those accepted before run to their end."""
    return unavailable(
        "the server is shutting down and accepts no new requests; try again later, or use "
        "another server",
        code="draining",
        retry_after_s=DRAINING_RETRY_S,
        headers={"connection": "close"},
    )


def engine_trouble(engine: EngineStatus) -> ApiError | None:
    """What is said while an engine does not serve; None while it does."""
    if engine.alive:
        return None
    if engine.state == "failed":
        return unavailable(f"the engine has ended: {engine.failure}", code="engine_dead")
    verb = "hangs and is being replaced" if engine.state == "stalled" else "is being restarted"
    return unavailable(
        f"the engine {verb}: {engine.failure}",
        code="engine_restarting",
        retry_after_s=engine.retry_after_s or 0.0,
    )


def api_error(
    failure: Exception, request_id: str, *, engine_retry_s: float | None = None
) -> ApiError:
    """The reply for anything a handler may raise; what was not foreseen is logged here.

    engine_retry_s: when another engine may serve in place of one that has ended; None for never.
    """
    if isinstance(failure, ApiError):
        return failure
    if isinstance(failure, ContextLengthError):
        counted = failure.prompt_tokens
        return ApiError(
            400,
            str(failure),
            param=failure.param,
            code=failure.code,
            n_prompt_tokens=UNSET if counted is None else counted,
            n_ctx=failure.context_tokens,
        )
    if isinstance(failure, RequestError):
        status = 404 if failure.code == MODEL_NOT_FOUND else 400
        return ApiError(status, str(failure), param=failure.param, code=failure.code)
    if isinstance(failure, TemplateError):
        return ApiError(400, str(failure), param="messages", code="template_error")
    if isinstance(failure, EngineRestartingError):
        return unavailable(
            str(failure), code="engine_restarting", retry_after_s=failure.retry_after_s
        )
    if isinstance(failure, EngineDeadError):
        return unavailable(
            f"the engine has ended: {failure}", code="engine_dead", retry_after_s=engine_retry_s
        )
    if isinstance(failure, GenerationError):
        logger.error("request %s failed in the engine: %s", request_id, failure)
        return ApiError(500, str(failure), type=SERVER_ERROR, code="generation_failed")
    logger.error("request %s failed", request_id, exc_info=failure)
    return ApiError(
        500,
        f"internal error; the server's log has the details under request id {request_id}",
        type=SERVER_ERROR,
        code="internal_error",
    )
