"""POST /v1/feedback: a score of an answer, by who got the answer."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping

import msgspec

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.accounts.caller import ADMIN, MASTER
from headrace.gateway.feedback.score import Given, Score, read_given
from headrace.gateway.feedback.scores_file import (
    MOST_NAMES,
    Rated,
    ScoresFile,
    TooManyScoresError,
)
from headrace.gateway.ledger.errors import LedgerError
from headrace.gateway.serving.entry import Operation
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.failure import Failure, FailureKind

logger = logging.getLogger(__name__)

# A request's line is written a moment after its answer.
_TRIES = 20
_WAIT_S = 0.05
_MS_PER_DAY = 86_400_000


class FeedbackPost:
    """POST /v1/feedback.

    scores: None if no ledger is kept. retention_days: the ledger's. wall_s: Unix time. side: the
    dialect of errors.
    """

    operation: Operation | None = None

    def __init__(
        self,
        scores: ScoresFile | None,
        access: Access,
        side: ClientSide,
        *,
        retention_days: int | None,
        wall_s: Callable[[], float],
        wait_s: float = _WAIT_S,
    ) -> None:
        self._scores = scores
        self._access = access
        self._retention_days = retention_days
        self._wall_s = wall_s
        self._wait_s = wait_s
        self.side = side

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """See `headrace.gateway.app.Post`."""
        caller = self._access.caller(headers)
        key = "" if caller is None else caller.key_id
        given = read_given(body)
        if self._scores is None:
            raise _refusal(
                501, "bad_request", "no_ledger",
                "feedback is stored in the ledger's file, and no ledger is kept; set ledger.path",
            )  # fmt: skip
        try:
            whose = None if caller in (None, MASTER, ADMIN) else key
            rated = await self._find(self._scores, given, whose)
            score = _score(given, rated, key, round(self._wall_s() * 1000))
            before_ms = None
            if self._retention_days is not None:
                before_ms = score.given_ms - self._retention_days * _MS_PER_DAY
            replaced = await asyncio.to_thread(self._scores.keep, score, before_ms)
        except TooManyScoresError:
            raise RequestError(
                f"name: this key has already given the request scores under {MOST_NAMES} names, "
                "which is the limit; use one of these again",
                param="name",
                code="too_many_scores",
            ) from None
        except (LedgerError, sqlite3.Error, OSError) as error:
            logger.warning("a score was not stored: %s", error)
            raise _refusal(
                503, "overloaded", "not_kept", "the score cannot be stored now; send it again later"
            ) from None
        told = {
            "object": "feedback",
            "request_id": score.request_id,
            "name": score.name,
            "score": score.score,
            "variant": score.variant,
            "replaced": replaced,
        }
        return msgspec.json.encode(told), []

    async def _find(self, scores: ScoresFile, given: Given, key: str | None) -> Rated:
        """key: whose request it has to be, None for anybody's."""
        for _ in range(_TRIES):
            found = await asyncio.to_thread(scores.find, given.request_id)
            for one in found:
                if key is None or one.key == key:
                    return one
            if found:
                break
            await asyncio.sleep(self._wait_s)
        raise _refusal(
            404, "bad_request", "request_not_found",
            "request_id: the ledger has no request of this key with this id; send the "
            "x-request-id of the answer",
        )  # fmt: skip


def _score(given: Given, rated: Rated, key: str, now_ms: int) -> Score:
    return Score(
        request_id=given.request_id,
        name=given.name,
        key=key,
        score=float(given.score),
        comment=given.comment,
        model=rated.model,
        target=rated.target,
        variant=rated.variant if given.variant is None else given.variant,
        at_ms=rated.at_ms,
        given_ms=now_ms,
    )


def _refusal(status: int, kind: FailureKind, code: str, message: str) -> AllTargetsFailedError:
    failure = Failure(kind=kind, message=message, status=status, code=code, param=None)
    return AllTargetsFailedError(status, failure, (), ())
