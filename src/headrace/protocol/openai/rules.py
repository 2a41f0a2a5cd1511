"""Rules over what both generation endpoints take, beyond the types of single fields."""

from __future__ import annotations

from headrace.errors import RequestError
from headrace.protocol.openai.sampling import MAX_STOP_CHARS, MAX_STOP_STRINGS, SamplingFields


def check_generation(fields: SamplingFields) -> None:
    """Every rule that chat completions and completions share; raises RequestError."""
    _check_stop(fields)
    _check_stream_options(fields)
    if fields.truncate_prompt_tokens == 0:
        raise RequestError(
            "truncate_prompt_tokens: 0 would leave nothing of the prompt; give -1 to keep as "
            "many tokens as fit, 1 or more to keep that many, or omit it",
            param="truncate_prompt_tokens",
        )
    if fields.timeout_s == 0:
        raise RequestError(
            "timeout_s: 0 leaves no time; give more than 0 seconds, or omit it",
            param="timeout_s",
        )
    if fields.allowed_token_ids is not None and not fields.allowed_token_ids:
        raise RequestError(
            "allowed_token_ids: the list is empty, so nothing could be drawn; give at least one "
            "id, or omit it",
            param="allowed_token_ids",
        )


def check_min_tokens(min_tokens: int, max_tokens: int | None, tokens_param: str) -> None:
    """Raise RequestError where fewer tokens are allowed than have to be generated."""
    if max_tokens is not None and min_tokens > max_tokens:
        raise RequestError(
            f"min_tokens: {min_tokens} is more than {tokens_param} allows, {max_tokens}; lower "
            f"min_tokens or raise {tokens_param}",
            param="min_tokens",
        )


def _check_stream_options(fields: SamplingFields) -> None:
    """Refuse options of a stream that was not requested, as OpenAI does."""
    if fields.stream_options is not None and not fields.stream:
        raise RequestError(
            "stream_options: only allowed when `stream` is true; omit it, or stream",
            param="stream_options",
        )
    if fields.return_progress and not fields.stream:
        raise RequestError(
            "return_progress: only allowed when `stream` is true; omit it, or stream",
            param="return_progress",
        )


def _check_stop(fields: SamplingFields) -> None:
    """Stop strings are not too long and not too many."""
    strings = fields.stop_strings
    if len(strings) > MAX_STOP_STRINGS:
        raise RequestError(
            f"stop: {len(strings)} strings given, at most {MAX_STOP_STRINGS} are allowed",
            param="stop",
        )
    for index, string in enumerate((fields.stop,) if isinstance(fields.stop, str) else fields.stop):
        param = "stop" if isinstance(fields.stop, str) else f"stop[{index}]"
        if len(string) > MAX_STOP_CHARS:
            raise RequestError(
                f"{param}: {len(string)} characters given, at most {MAX_STOP_CHARS} are allowed",
                param=param,
            )
