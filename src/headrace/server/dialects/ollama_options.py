"""Options of Ollama's that have no neutral form: harmless, a hint, or refused.

Most say how a machine is to compute, which changes no answer: those are hints, and named. Some
would change the answer and have no counterpart here, so that only the value that turns them off is
taken. num_ctx is a promise about the context, which must not be longer than this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.neutral.call import ChatCall

OPTIONS = "options"

# The values at which they do nothing.
_OFF: Mapping[str, tuple[float, ...]] = {
    "mirostat": (0,),
    "typical_p": (1,),
    "tfs_z": (1,),
}
# Answers end where they end or the context does; a text is as long as it is allowed.
_UNLIMITED = (-1, -2)
_NO_OPS = ("keep_alive", "truncate", "shift")
"""Fields beside the options that change nothing: the one model stays loaded, and a prompt that does
not fit is refused."""


def with_options(call: ChatCall, context_tokens: int) -> ChatCall:
    """The call without the options that change nothing here; raises RequestError for what would."""
    extra = {name: value for name, value in call.extra.items() if name not in _NO_OPS}
    options = extra.pop(OPTIONS, None)
    kept: dict[str, Any] = {}
    for name, value in (options if isinstance(options, dict) else {}).items():
        if name == "num_ctx":
            _check_context(value, context_tokens)
        elif name in _OFF:
            _check_off(name, value)
        elif not (name == "num_predict" and value in _UNLIMITED):
            kept[name] = value
    if kept:
        _check_predict(kept)
        extra[OPTIONS] = kept
    return msgspec.structs.replace(call, extra=extra)


def _check_context(value: object, context_tokens: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(
            f"options.num_ctx: {shown(value)} is not a number of tokens, at least 1",
            param="options.num_ctx",
        )
    if value > context_tokens:
        raise RequestError(
            f"options.num_ctx: {value} tokens are more than this server's context of "
            f"{context_tokens}; omit it, or give at most {context_tokens}: the context is as long "
            "as the model was made for, or less where --max-model-len or the KV cache bounds it",
            param="options.num_ctx",
        )


def _check_off(name: str, value: object) -> None:
    if isinstance(value, bool) or value not in _OFF[name]:
        raise RequestError(
            f"options.{name}: {shown(value)} is not supported; accepted: {_OFF[name][0]}",
            param=f"options.{name}",
            code="unsupported",
        )


def _check_predict(options: Mapping[str, Any]) -> None:
    if "num_predict" in options:
        raise RequestError(
            f"options.num_predict: {shown(options['num_predict'])} is not a number of tokens: 1 or "
            "more, or -1 for as many as fit",
            param="options.num_predict",
        )
