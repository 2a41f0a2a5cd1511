"""From messages or text to token ids. Takes long for long texts: see Call.text_work.

A conversation is rendered by its template, which writes the special tokens itself; so the tokenizer
adds none, unless asked; a special token that a user wrote is ordinary text. Text of a completion is
tokenized as it stands, with them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.conversation.request import template_tools
from headrace.engine.params import ThinkingBudget
from headrace.errors import RequestError
from headrace.protocol.openai.chat import Message
from headrace.protocol.openai.tools import ToolDefinition
from headrace.server.model.served import ServedModel
from headrace.server.prompts.params import exceeds_context
from headrace.text import ChatTemplate
from headrace.text.cuts import WHOLE_CHARS, TextBound, TextTooLongError
from headrace.text.library import naming, whole_text

if TYPE_CHECKING:
    from headrace.text.tokenizer import Segment

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model gets it."""

    token_ids: list[int]
    param: str
    """What error messages call it."""
    text: str = ""
    text_offsets: tuple[int, ...] = ()
    """With `text`: what `echo` shows of it, and where in that each token begins."""
    thinking: ThinkingBudget | None = None
    """Most reasoning of answers to it; None for any."""


TEXT_TOO_LONG = "text_too_long"

# Names that rendering itself gives a template, or takes for other ends.
TAKEN = frozenset(inspect.signature(ChatTemplate.render_segments).parameters) - {"kwargs"}


def tokenize(
    model: ServedModel, text: str, *, add_special_tokens: bool, param: str, must_fit: bool
) -> list[int]:
    """Token ids of a text; special tokens written in it are taken as such.

    param: the field to name in the RequestError for a text that is too long: with must_fit for the
    context, without for this server. A short text has to fit too, and is tokenized all the same
    (0.1 s): its error says how many tokens it has, and that of a long one how many it has at least.
    Raises RequestError for a text the tokenizer fails on, too.
    """
    with _too_long(model, param, must_fit=must_fit), naming(param):
        _check_fewest(model, text, must_fit=must_fit)
        ids = model.tokenizer.encode(
            text, add_special_tokens=add_special_tokens, bound=_bound(model, must_fit)
        )
    if model.tokenizer.has_double_bos(ids):
        logger.warning(
            "a prompt begins with two beginning-of-text tokens, which lowers quality: the "
            "tokenizer adds one, so omit it from the text or set add_special_tokens to false"
        )
    return ids


@dataclass(frozen=True)
class Conversation:
    """A conversation as a request has it, before its template writes it."""

    messages: Sequence[Message]
    opens_turn: bool
    """Whether the template is to open the assistant's turn."""
    continues: bool
    """Whether the last message is left open."""
    variables: Mapping[str, Any]
    """Of the template, before the server's own."""
    template: str | None = None
    """The request's own; None for the model's."""
    tools: Sequence[ToolDefinition] = ()
    """Functions that the template presents to the model."""


class Rendering(NamedTuple):
    """A conversation as the model reads it."""

    token_ids: list[int]
    text: str


def render(
    model: ServedModel, conversation: Conversation, *, add_special_tokens: bool, must_fit: bool
) -> Rendering:
    """Text and token ids of a conversation; raises TemplateError where the template refuses it,
    RequestError for a template of the request's own where the server takes none.

    must_fit: as for `tokenize`, of the rendered text.
    """
    segments = _segments(model, conversation)
    ids = encoded(
        model,
        segments,
        add_special_tokens=add_special_tokens,
        param="messages",
        must_fit=must_fit,
    )
    if model.tokenizer.has_double_bos(ids):
        logger.warning(
            "a conversation begins with two beginning-of-text tokens, which lowers quality: "
            "the template writes one, so omit add_special_tokens"
        )
    return Rendering(ids, "".join(piece for piece, _ in segments))


def encoded(
    model: ServedModel,
    segments: Sequence[Segment],
    *,
    add_special_tokens: bool,
    param: str,
    must_fit: bool,
) -> list[int]:
    """Token ids of joined segments; param, must_fit and errors as of `tokenize`."""
    with _too_long(model, param, must_fit=must_fit), naming(param):
        _check_fewest(model, "".join(piece for piece, _ in segments), must_fit=must_fit)
        return model.tokenizer.encode_segments(
            segments, add_special_tokens=add_special_tokens, bound=_bound(model, must_fit)
        )


def render_text(model: ServedModel, conversation: Conversation) -> str:
    """The text that `render` tokenizes, with the same errors; U+FFFD stands for half of a surrogate
    pair, as in its tokens."""
    return whole_text("".join(piece for piece, _ in _segments(model, conversation)))


def _segments(model: ServedModel, conversation: Conversation) -> list[Segment]:
    """A conversation as its template writes it, in pieces for Tokenizer.encode_segments."""
    template = conversation.template
    used = model.chat_template() if template is None else model.request_templates.of(template)
    for name in conversation.variables:
        if name in TAKEN:
            raise RequestError(
                f"chat_template_kwargs.{name}: this is not a template variable; use the "
                "request's own field",
                param=f"chat_template_kwargs.{name}",
            )
    try:
        return used.render_segments(
            [_plain(message) for message in conversation.messages],
            control_tokens=model.tokenizer.control_tokens,
            add_generation_prompt=conversation.opens_turn,
            tools=template_tools(conversation.tools),
            continue_final_message=conversation.continues,
            **{**model.template_defaults, **conversation.variables},
        )
    except RecursionError:
        raise RequestError("messages: an object in them is nested too deeply") from None


def last_tokens(
    token_ids: list[int], keep: int | None, *, room: int, context_tokens: int
) -> list[int]:
    """The last `keep` tokens; all for None, for -1 as many as leave `room` in the context."""
    if keep is None:
        return token_ids
    if keep == -1:
        keep = max(1, context_tokens - room)
    return token_ids[-keep:]


def _bound(model: ServedModel, must_fit: bool) -> TextBound:
    most = model.max_text_tokens
    return TextBound(model.limits.context_tokens - 1 if must_fit else most, most)


def _check_fewest(model: ServedModel, text: str, *, must_fit: bool) -> None:
    """Refuse a long text before it is tokenized, where that is possible."""
    if len(text) > WHOLE_CHARS:
        fewest = model.tokenizer.fewest_tokens(text)
        if fewest > _bound(model, must_fit).tokens:
            raise TextTooLongError(least_tokens=fewest)


@contextmanager
def _too_long(model: ServedModel, param: str, *, must_fit: bool) -> Iterator[None]:
    """Within it a text that is too long is a RequestError."""
    try:
        yield
    except TextTooLongError as error:
        if error.least_tokens and must_fit:
            raise exceeds_context(error.least_tokens, model.limits, param) from None
        limit = (
            f"; at most {model.max_text_tokens} are tokenized here" if error.least_tokens else ""
        )
        raise RequestError(
            f"{param}: {error}{limit}. Send it in parts.", param=param, code=TEXT_TOO_LONG
        ) from None


def _plain(message: Message) -> dict[str, Any]:
    """A message as the template sees it: absent fields are absent, not null."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    return plain
