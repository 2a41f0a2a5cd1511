"""A request as the mock endpoint understands it: the figures that times are made from.

Tokens of a prompt are counted as words, parted by white space; token ids count as themselves.
What does not change times is accepted unread.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from headrace.bench.mock.plan import Wanted
from headrace.bench.mock.settings import MAX_TOKENS
from headrace.errors import RequestError, shown

Route = Literal["chat", "completions", "embeddings"]
ROUTES: dict[str, Route] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
}
_PROMPT_FIELDS: dict[Route, str] = {
    "chat": "messages",
    "completions": "prompt",
    "embeddings": "input",
}


class Asked(NamedTuple):
    """A request as the mock has read it."""

    route: Route
    model: str
    wanted: Wanted
    stream: bool = False
    with_usage: bool = False
    with_all_usage: bool = False
    """Usage in every event."""
    with_metrics: bool = False
    inputs: int = 1
    """How many texts to embed."""
    dimensions: int | None = None
    as_base64: bool = False
    """How vectors are written."""


def read_request(route: Route, body: bytes, default_model: str) -> Asked:
    """Understand a body; RequestError says what is wrong with it, naming the field."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RequestError("the body is not a JSON object")
    name = _PROMPT_FIELDS[route]
    prompt = fields.get(name)
    if not prompt:
        raise RequestError(f"{name}: is missing or empty; give at least one", param=name)
    if fields.get("n") not in (None, 1):
        raise RequestError(f"n: {shown(fields['n'])} is not 1, the only value supported", param="n")
    options = fields["stream_options"] if isinstance(fields.get("stream_options"), dict) else {}
    most = _whole(fields, "max_completion_tokens", 1) or _whole(fields, "max_tokens", 1)
    return Asked(
        route=route,
        model=fields["model"] if isinstance(fields.get("model"), str) else default_model,
        wanted=Wanted(
            prompt_tokens=_tokens(prompt),
            max_tokens=most,
            min_tokens=_whole(fields, "min_tokens", 0) or 0,
            ignore_eos=fields.get("ignore_eos") is True,
        ),
        stream=fields.get("stream") is True,
        with_usage=options.get("include_usage") is True,
        with_all_usage=options.get("continuous_usage_stats") is True,
        with_metrics=fields.get("return_metrics") is True,
        inputs=_inputs(prompt),
        dimensions=_whole(fields, "dimensions", 1),
        as_base64=fields.get("encoding_format") == "base64",
    )


def _whole(fields: dict[str, Any], name: str, least: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_TOKENS:
        raise RequestError(
            f"{name}: {shown(value)} is not a whole number in {least} to {MAX_TOKENS}", param=name
        )
    return value


def _tokens(prompt: Any) -> int:
    """Words of every text anywhere in `prompt`, and numbers; images and names of parts are none."""
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list):
        return sum(_tokens(part) for part in prompt)
    if isinstance(prompt, dict):
        return _tokens(prompt.get("content", prompt.get("text")))
    return int(isinstance(prompt, int))


def _inputs(prompt: Any) -> int:
    """Texts in the input of an embedding: a list of numbers is one of them."""
    if isinstance(prompt, list) and not isinstance(prompt[0], int):
        return len(prompt)
    return 1
