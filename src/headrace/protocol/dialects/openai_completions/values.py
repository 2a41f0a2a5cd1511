"""Constants of the dialect."""

from __future__ import annotations

from typing import Final

DIALECT: Final = "openai-completions"
OBJECT: Final = "text_completion"
"""Of whole answers and, as OpenAI has it, of each event of a stream too."""
