"""Why a model stopped: Gemini's finishReason in neutral words.

    STOP, FINISH_REASON_UNSPECIFIED                              stop, or tool_calls with calls
    MAX_TOKENS                                                   length
    SAFETY, RECITATION, LANGUAGE, BLOCKLIST, PROHIBITED_CONTENT,
    SPII, MODEL_ARMOR, IMAGE_SAFETY, IMAGE_RECITATION,
    IMAGE_PROHIBITED_CONTENT                                     content_filter
    MALFORMED_FUNCTION_CALL, MALFORMED_RESPONSE,
    TOO_MANY_TOOL_CALLS, MISSING_THOUGHT_SIGNATURE               a failure
    UNEXPECTED_TOOL_CALL, OTHER, NO_IMAGE, IMAGE_OTHER,          a failure if there is no content,
    what is not known yet                                        else as STOP

The model broke off in the failing ones: as "stop" an agent would take half a turn for a whole one,
as a failure it is asked again. A call of a function that nobody declared comes with that call,
which the client can answer. The words of Google are kept in `extra["finishReason"]`.
"""

from __future__ import annotations

from headrace.protocol.neutral.reply import Finish

_FILTERED = frozenset(
    (
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_RECITATION",
        "IMAGE_PROHIBITED_CONTENT",
    )
)
_BROKEN = frozenset(
    (
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
    )
)
UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
ENDED = frozenset(("STOP", UNSPECIFIED))


def finish_of(reason: str, *, calls: bool) -> Finish:
    """calls: whether the choice holds calls of the client's functions."""
    if reason == "MAX_TOKENS":
        return "length"
    if reason in _FILTERED:
        return "content_filter"
    return "tool_calls" if calls else "stop"


def is_plain(reason: str) -> bool:
    """Whether the neutral word says all that Google's does."""
    return reason in ENDED or reason == "MAX_TOKENS"


def is_failure(reason: str, *, content: bool) -> bool:
    """Whether a choice that ended this way is not an answer. content: whether it holds anything."""
    if reason in _BROKEN:
        return True
    return not content and not is_plain(reason) and reason not in _FILTERED
