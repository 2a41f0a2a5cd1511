"""Failures as HTTP: which status and which error object each becomes.

Whatever is not foreseen is a 500 that tells the client nothing but the request's id; the log has
the traceback.
"""

from __future__ import annotations

import logging

from headrace.errors import EngineDeadError, HeadraceError, RequestError, TemplateError
from headrace.protocol.openai.error import INVALID_REQUEST, SERVER_ERROR, ErrorBody, ErrorDetail

logger = logging.getLogger(__name__)

MODEL_NOT_FOUND = "model_not_found"


class ApiError(Exception):
    """A reply that is an error: its status and its body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.detail = ErrorDetail(message=message, type=type, param=param, code=code)

    @property
    def body(self) -> ErrorBody:
        """The JSON object for the wire."""
        return ErrorBody(self.detail)


class ClientGoneError(Exception):
    """The client closed the connection; nobody is left to answer."""


class GenerationError(HeadraceError):
    """The engine gave up on one request; others go on."""


def unavailable(message: str, code: str) -> ApiError:
    """A 503: the server is there, the engine is not (yet, or any more)."""
    return ApiError(503, message, type=SERVER_ERROR, code=code)


def api_error(failure: Exception, request_id: str) -> ApiError:
    """The reply for anything a handler may raise; what was not foreseen is logged here."""
    if isinstance(failure, ApiError):
        return failure
    if isinstance(failure, RequestError):
        status = 404 if failure.code == MODEL_NOT_FOUND else 400
        return ApiError(status, str(failure), param=failure.param, code=failure.code)
    if isinstance(failure, TemplateError):
        return ApiError(400, str(failure), param="messages", code="template_error")
    if isinstance(failure, EngineDeadError):
        return unavailable(f"the engine has ended: {failure}", "engine_dead")
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
