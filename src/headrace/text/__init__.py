"""Between people and tokens: tokenizers, chat templates, detokenizing, stop strings.

Everything here that streams is a state machine for which any way of cutting its input gives the
same joined output. Names are imported on first use: the package itself costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.text.chat_template import ChatTemplate
    from headrace.text.detokenizer import Detokenizer
    from headrace.text.no_tokenizer import tokenizer_or_none
    from headrace.text.stop import StopStrings
    from headrace.text.stream import TextDelta, TextStream
    from headrace.text.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "StopStrings",
    "TextDelta",
    "TextStream",
    "Tokenizer",
    "load_tokenizer",
    "tokenizer_or_none",
]

_MODULES = {
    "ChatTemplate": "chat_template",
    "Detokenizer": "detokenizer",
    "StopStrings": "stop",
    "TextDelta": "stream",
    "TextStream": "stream",
    "Tokenizer": "tokenizer",
    "load_tokenizer": "tokenizer",
    "tokenizer_or_none": "no_tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headrace.text' has no attribute {name!r}")
    return getattr(import_module(f"headrace.text.{_MODULES[name]}"), name)
