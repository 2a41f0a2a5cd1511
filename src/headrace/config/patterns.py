"""Patterns that texts of settings have to match, each with the words that errors use for it."""

from __future__ import annotations

# Visible ASCII characters: what a header can carry.
KEY = r"^[!-~]+\Z"
# A name, every name below one (*.name), or all (*); no scheme and no port.
HOST_NAME = r"^(\*|(\*\.)?[A-Za-z0-9_][A-Za-z0-9_.-]*)\Z"

_WORDS = {
    KEY: "visible ASCII characters without spaces, at least one",
    HOST_NAME: "a host name without scheme and port, *.NAME or *",
}


def words_of_pattern(message: str) -> str | None:
    """What msgspec's message about a text that does not match expects; None for other messages."""
    if " matching regex " not in message:
        return None
    return next((words for pattern, words in _WORDS.items() if repr(pattern) in message), None)
