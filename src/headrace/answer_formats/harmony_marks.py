"""The marks of harmony, the format of gpt-oss: messages on channels, each with a header."""

from __future__ import annotations

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"

MARKS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
"""All of them; each is a special token of the models."""

ANALYSIS = "analysis"
"""The channel of reasoning."""
COMMENTARY = "commentary"
"""That of calls, and of the text before them."""
FINAL = "final"
"""That of the answer."""

FUNCTIONS = "functions."
"""Before the name of a function that a message calls."""
JSON = f"{CONSTRAIN}json"
"""In a header: the message is JSON."""

NEXT_MESSAGE = f"{END}{START}assistant"
"""The end of a message, and the beginning of the assistant's next."""


def message_on(channel: str, *, form: str = "") -> str:
    """The header of a message on a channel, as it stands behind the beginning of the turn. form:
    what it says of the message's form."""
    return f"{CHANNEL}{channel}{f' {form}' if form else ''}{MESSAGE}"
