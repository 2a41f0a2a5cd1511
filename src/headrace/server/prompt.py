"""From messages or text to token ids, off the event loop where that takes long.

A conversation is rendered by its template, which writes the special tokens itself; so the tokenizer
adds none, unless asked; a special token that a user wrote is ordinary text. Text of a completion is
tokenized as it stands, with them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from headrace.errors import RequestError
from headrace.protocol.openai.chat import Message
from headrace.server.served import ServedModel
from headrace.text import ChatTemplate

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Names that rendering itself gives a template, or takes for other ends.
_TAKEN = frozenset(inspect.signature(ChatTemplate.render_segments).parameters) - {"kwargs"}

# About a millisecond of tokenizing; below it, going to a thread and back costs more than it frees.
LARGE_CHARS = 4096


async def off_loop(workers: Executor, chars: int, work: Callable[[], T]) -> T:
    """The result of `work`, done in a worker thread if it is about many characters."""
    if chars < LARGE_CHARS:
        return work()
    return await asyncio.get_running_loop().run_in_executor(workers, work)


async def tokenize(
    workers: Executor, model: ServedModel, text: str, *, add_special_tokens: bool
) -> list[int]:
    """Token ids of a text; special tokens written in it are taken as such."""
    return await off_loop(
        workers,
        len(text),
        lambda: model.tokenizer.encode(text, add_special_tokens=add_special_tokens),
    )


async def render(
    workers: Executor,
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
    plain = [_plain(message) for message in messages]

    def work() -> list[int]:
        segments = template.render_segments(
            plain,
            control_tokens=tokenizer.control_tokens,
            add_generation_prompt=opens_turn,
            continue_final_message=continues,
            **variables,
        )
        return tokenizer.encode_segments(segments, add_special_tokens=add_special_tokens)

    try:
        ids = await off_loop(workers, _chars(messages), work)
    except RecursionError:
        raise RequestError("messages: an object in them is nested too deeply") from None
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


def _chars(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        if isinstance(message.content, str):
            total += len(message.content)
        elif message.content is not None:
            total += sum(len(part.text or "") for part in message.content)
    return total
