"""From messages or text to token ids. Takes long for long texts: see Call.text_work.

A conversation is rendered by its template, which writes the special tokens itself; so the tokenizer
adds none, unless asked; a special token that a user wrote is ordinary text. Text of a completion is
tokenized as it stands, with them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.openai.chat import Message
from headrace.server.params import check_fewest_tokens
from headrace.server.served import ServedModel
from headrace.text import ChatTemplate
from headrace.text.library import naming

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


# Up to this, a text that does not fit is tokenized all the same (0.1 s): its error says how many
# tokens it has, and beyond how many it has at least.
COUNTED_CHARS = 2**18

# Names that rendering itself gives a template, or takes for other ends.
TAKEN = frozenset(inspect.signature(ChatTemplate.render_segments).parameters) - {"kwargs"}


def tokenize(
    model: ServedModel, text: str, *, add_special_tokens: bool, must_fit: str | None = None
) -> list[int]:
    """Token ids of a text; special tokens written in it are taken as such.

    must_fit: the field to name in the RequestError for a large text that the context cannot hold,
    which is found out before tokenizing; None takes any text.
    Raises RequestError for a text the tokenizer fails on.
    """
    _check_fits(model, text, must_fit)
    with naming(must_fit or "prompt"):
        ids = model.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    if model.tokenizer.has_double_bos(ids):
        logger.warning(
            "a prompt begins with two beginning-of-text tokens, which lowers quality: the "
            "tokenizer adds one, so omit it from the text or set add_special_tokens to false"
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
    template: str | None = None,
    must_fit: str | None = None,
) -> list[int]:
    """Token ids of a conversation; raises TemplateError where the template refuses it.

    variables: of the template, before the server's own. template: the request's, None for the
    model's; RequestError where the server takes none. must_fit: as for `tokenize`, of the
    rendered text.
    """
    tokenizer = model.tokenizer
    segments = _segments(
        model,
        messages,
        opens_turn=opens_turn,
        continues=continues,
        variables=variables,
        template=template,
    )
    _check_fits(model, "".join(piece for piece, _ in segments), must_fit)
    with naming("messages"):
        ids = tokenizer.encode_segments(segments, add_special_tokens=add_special_tokens)
    if tokenizer.has_double_bos(ids):
        logger.warning(
            "a conversation begins with two beginning-of-text tokens, which lowers quality: "
            "the template writes one, so omit add_special_tokens"
        )
    return ids


def render_text(
    model: ServedModel,
    messages: Sequence[Message],
    *,
    opens_turn: bool,
    continues: bool,
    variables: Mapping[str, Any],
    template: str | None = None,
) -> str:
    """The text that `render` tokenizes, with the same arguments and errors."""
    segments = _segments(
        model,
        messages,
        opens_turn=opens_turn,
        continues=continues,
        variables=variables,
        template=template,
    )
    return "".join(piece for piece, _ in segments)


def _segments(
    model: ServedModel,
    messages: Sequence[Message],
    *,
    opens_turn: bool,
    continues: bool,
    variables: Mapping[str, Any],
    template: str | None,
) -> list[Segment]:
    """A conversation as its template writes it, in pieces for Tokenizer.encode_segments."""
    used = model.chat_template() if template is None else model.request_templates.of(template)
    for name in variables:
        if name in TAKEN:
            raise RequestError(
                f"chat_template_kwargs.{name}: this is not a template variable; use the "
                "request's own field",
                param=f"chat_template_kwargs.{name}",
            )
    try:
        return used.render_segments(
            [_plain(message) for message in messages],
            control_tokens=model.tokenizer.control_tokens,
            add_generation_prompt=opens_turn,
            continue_final_message=continues,
            **{**model.template_defaults, **variables},
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


def _check_fits(model: ServedModel, text: str, param: str | None) -> None:
    if param is not None and len(text) > COUNTED_CHARS:
        check_fewest_tokens(model.tokenizer.fewest_tokens(text), model.limits, param)


def _plain(message: Message) -> dict[str, Any]:
    """A message as the template sees it: absent fields are absent, not null."""
    plain: dict[str, Any] = msgspec.to_builtins(message)
    return plain
