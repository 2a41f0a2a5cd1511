"""Scores of answers, stored in the ledger's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.gateway.access import Access
from headrace.gateway.feedback.feedback_post import FeedbackPost
from headrace.gateway.feedback.scores_file import ScoresFile
from headrace.gateway.settings.ledger import LedgerSettings
from headrace.protocol.neutral.dialect import ClientSide


def feedback_post(
    settings: LedgerSettings,
    folder: Path,
    access: Access,
    side: ClientSide,
    wall_s: Callable[[], float],
) -> FeedbackPost:
    """folder: what a relative path begins at. Nothing is opened before the first score."""
    return FeedbackPost(
        None if settings.path is None else ScoresFile(folder / settings.path),
        access,
        side,
        retention_days=settings.retention_days,
        wall_s=wall_s,
    )
