"""From messages or text to token ids. Takes long for long texts: see Call.text_work.

A conversation is rendered by its template, which writes the special tokens itself; so the tokenizer
adds none, unless asked; a special token that a user wrote is ordinary text. Text of a completion is
tokenized as it stands, with them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.openai.chat import Message
from headrace.server.served import ServedModel
from headrace.text import ChatTemplate

logger = logging.getLogger(__name__)

# Names that rendering itself gives a template, or takes for other ends.
_TAKEN = frozenset(inspect.signature(ChatTemplate.render_segments).parameters) - {"kwargs"}


def tokenize(model: ServedModel, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids of a text; special tokens written in it are taken as such."""
    ids = model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    if model.tokenizer.has_double_bos(ids):
        logger.warning(
            "a prompt begins with two beginning-of-text tokens, which costs quality: the tokenizer "
            "adds one, so leave it out of the text or set add_special_tokens to false"
        )
    return ids


def render(
    model: ServedModel,
    messages: Sequence[Message],
    *,
    opens_turn: bool,
    continues: bool,
    add_special_tokens: bool,
    variables: Mapping[str, Any],
) -> list[int]:
    """Token ids of a conversation; raises TemplateError where the template refuses it."""
    template = model.chat_template()
    tokenizer = model.tokenizer
    for name in variables:
        if name in _TAKEN:
            raise RequestError(
                f"chat_template_kwargs.{name}: this is not a further variable; use the request's "
                "own field",
                param=f"chat_template_kwargs.{name}",
            )
    try:
        segments = template.render_segments(
            [_plain(message) for message in messages],
            control_tokens=tokenizer.control_tokens,
            add_generation_prompt=opens_turn,
            continue_final_message=continues,
            **variables,
        )
    except RecursionError:
        raise RequestError("messages: an object in them is nested too deeply") from None
    ids = tokenizer.encode_segments(segments, add_special_tokens=add_special_tokens)
    if tokenizer.has_double_bos(ids):
        logger.warning(
            "a conversation begins with two beginning-of-text tokens, which costs quality: the "
            "template writes one, so leave add_special_tokens out"
        )
    return ids


def _plain(message: Message) -> dict[str, Any]:
    """A message as the template sees it: absent fields are absent, not null."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    return plain
