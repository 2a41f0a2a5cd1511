"""POST /completions as clients write it. Source: OpenAI's API description, 2026."""

from __future__ import annotations

from typing import Any

from headrace.protocol.body_json import decode_object
from headrace.protocol.dialects.openai_chat.request.fields import Fields, refuse
from headrace.protocol.dialects.openai_completions.values import DIALECT
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text

_MOST_CHOICES = 128


def read_call(body: bytes) -> ChatCall:
    """One text becomes one turn of a user; raises RequestError naming the field at fault.

    Every other prompt, and what else only this API knows, is in `extra` (see `beyond_chat`).
    """
    fields = Fields(decode_object(body))
    model = fields.string("model")
    if not model:
        raise refuse("model", model, "the name of a model")
    messages = _read_prompt(fields)
    _check_own(fields)
    choices = fields.integer("n", 1)
    if choices is not None and choices > _MOST_CHOICES:
        raise refuse("n", choices, f"at most {_MOST_CHOICES}")
    max_tokens = fields.integer("max_tokens", 0)
    if max_tokens == 0:
        fields.left["max_tokens"] = max_tokens
    return ChatCall(
        dialect=DIALECT,
        model=model,
        messages=messages,
        max_tokens=max_tokens or None,
        temperature=fields.number("temperature", 0),
        top_p=fields.number("top_p", 0, 1),
        top_k=fields.integer("top_k", -1),
        min_p=fields.number("min_p", 0, 1),
        frequency_penalty=fields.number("frequency_penalty"),
        presence_penalty=fields.number("presence_penalty"),
        repetition_penalty=fields.number("repetition_penalty", 0),
        logit_bias=_read_bias(fields),
        seed=fields.integer("seed"),
        stop=fields.strings("stop"),
        choices=choices,
        user=fields.string("user"),
        stream=fields.flag("stream") or False,
        stream_usage=_read_stream_options(fields),
        extra=fields.left,
    )


def _read_prompt(fields: Fields) -> tuple[Message, ...]:
    value = fields.left.get("prompt")
    if value is not None and not isinstance(value, str | list):
        raise refuse("prompt", value, "a string, a list of them, or token ids")
    text = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(text, str) or not text:
        return ()
    del fields.left["prompt"]
    return (Message(role="user", parts=(Text(text=text),)),)


def _check_own(fields: Fields) -> None:
    """Fields of this API alone are of their types; they stay in `left`."""
    own: dict[str, Any] = {
        "echo": fields.flag("echo"),
        "suffix": fields.string("suffix"),
        "logprobs": fields.integer("logprobs", 0),
        "best_of": fields.integer("best_of", 1),
    }
    fields.left |= {name: value for name, value in own.items() if value is not None}


def _read_bias(fields: Fields) -> dict[str, float] | None:
    value = fields.object("logit_bias")
    for token, bias in (value or {}).items():
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise refuse(f"logit_bias.{token}", bias, "a number")
    return value


def _read_stream_options(fields: Fields) -> bool:
    options = dict(fields.object("stream_options") or {})
    wanted = options.pop("include_usage", None)
    if wanted is not None and not isinstance(wanted, bool):
        raise refuse("stream_options.include_usage", wanted, "true or false")
    if options:
        fields.left["stream_options"] = options
    return wanted or False
