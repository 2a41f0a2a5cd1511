"""The reading of answers, under the name that the server's files know."""

from __future__ import annotations

from headrace.conversation.reading import AnswerReading, ReadChoice, mark_ids, reading_of

__all__ = ["AnswerReading", "ReadChoice", "mark_ids", "reading_of"]
