"""A chat with a server's model, over OpenAI's API: `headrace serve`, `headrace gateway`, or others.

Only what every such server knows is required: the list of models and streamed chat completions.
What headrace and vLLM know beside that (the length of the context, counting tokens) is used where
it is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from headrace.cli.chat import settings as chat_settings
from headrace.cli.chat.conversation import Call, Message, plain
from headrace.cli.chat.model import ChatDelta
from headrace.cli.server_client import count, get, number, object_of, objects, open_client
from headrace.cli.server_url import API_KEY_VARIABLE, base_url
from headrace.engine.params import MODEL_DEFAULTS
from headrace.errors import ContextLengthError, HeadraceError, RequestError, shown
from headrace.protocol.sse import DONE_DATA, Event, SSEReader, StreamTooLargeError

if TYPE_CHECKING:
    from headrace.cli.chat.tools import Tool
    from headrace.engine.sampling.defaults import SamplingDefaults
    from headrace.offline.params import SamplingParams

_CONNECT_S = 10.0
# A server sends something every 15 s; others are silent for as long as a prompt takes.
_SILENT_S = 600.0
_LIST_S = 60.0
_MAX_ERROR_BYTES = 2**16


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallPart(msgspec.Struct, frozen=True):
    index: int = 0
    id: str | None = None
    function: _Function = _Function()


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """One of the two, or both with the same text."""
    tool_calls: list[_CallPart] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None


class RemoteModel:
    """A ChatModel of a server. `name` is its name there."""

    def __init__(self, url: str, name: str | None = None, *, key: str | None = None) -> None:
        """name: None takes the first that the server lists. Raises HeadraceError where the server
        cannot be reached or lists no model."""
        self._base = base_url(url, "--url")
        self._client = open_client(key, httpx2.Timeout(_SILENT_S, connect=_CONNECT_S))
        listed = self._listed()
        if name is None and not listed:
            raise HeadraceError(f"{self._base} lists no models; name one: headrace chat MODEL")
        self.name = name or listed[0]["id"]
        own: dict[str, Any] = next((model for model in listed if model["id"] == self.name), {})
        self.context_tokens = count(own.get("max_model_len")) or None
        stated = own.get("default_sampling_params")
        if not isinstance(stated, dict):
            stated = {}
        defaults = {name: number(stated.get(name)) for name in MODEL_DEFAULTS}
        self.sampling_defaults: SamplingDefaults = {
            name: value for name, value in defaults.items() if value is not None
        }

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Tool]) -> int | None:
        """By the server's /tokenize, which headrace and vLLM have; None where there is none."""
        if not messages:
            return 0
        root = self._base.removesuffix("/v1")
        body: dict[str, Any] = {"model": self.name, "messages": plain(messages)}
        if tools:
            body["tools"] = tools
        try:
            reply = self._client.post(f"{root}/tokenize", json=body)
        except httpx2.HTTPError:
            return None
        counted = object_of(reply.content) if reply.status_code == 200 else None
        return count(counted.get("count")) if counted else None

    def answer(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        *,
        stop: tuple[str, ...],
        effort: str | None = None,
        tools: Sequence[Tool] = (),
    ) -> Iterator[ChatDelta]:
        """The parts as the server sends them; tokens are known with the last."""
        body: dict[str, Any] = {
            "model": self.name,
            "messages": plain(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **chat_settings.chosen(params),
        }
        if params.samplers != chat_settings.DEFAULT.samplers:
            body["samplers"] = list(params.samplers)
        if stop:
            body["stop"] = list(stop)
        if effort is not None:
            body["reasoning_effort"] = effort
        if tools:
            body["tools"] = tools
        schema = chat_settings.schema(params)
        if schema is not None:
            form = {"name": "answer", "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        try:
            with self._client.stream("POST", f"{self._base}/chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    raise _refused(reply.status_code, _beginning(reply))
                yield from _deltas(reply.iter_bytes())
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

    def _listed(self) -> list[dict[str, Any]]:
        try:
            reply = get(self._client, f"{self._base}/models", timeout_s=_LIST_S)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        if reply.status != 200:
            raise _refused(reply.status, reply.content[:_MAX_ERROR_BYTES])
        models = reply.object.get("data")
        if not isinstance(models, list):
            raise HeadraceError(
                f"{self._base}/models is not a list of models as OpenAI's API has it; --url is "
                "the URL of a server of that API"
            )
        return [model for model in objects(models) if isinstance(model.get("id"), str)]

    def _unreachable(self, error: Exception) -> HeadraceError:
        return HeadraceError(
            f"--url {self._base}: the server cannot be reached: {error}; start one with "
            "`headrace serve`, or correct the URL"
        )


def _deltas(pieces: Iterator[bytes]) -> Iterator[ChatDelta]:
    """A stream's events as parts of the answer.

    A server reports how many tokens there are at its end. Until then each event with text counts
    for one, so that an answer that is stopped has a number, too.
    """
    reader = SSEReader()
    counted = 0
    calls: dict[int, Call] = {}
    for piece in pieces:
        for event in _events(reader, piece):
            if event.data == DONE_DATA:
                return
            chunk = _object(event.data)
            if "error" in chunk:
                raise HeadraceError(_message(chunk) or shown(event.data))
            usage = chunk.get("usage")
            if isinstance(usage, dict):
                total = count(usage.get("completion_tokens")) or 0
                details = usage.get("prompt_tokens_details")
                cached = details.get("cached_tokens") if isinstance(details, dict) else None
                yield ChatDelta(
                    output_tokens=total - counted,
                    prompt_tokens=count(usage.get("prompt_tokens")) or 0,
                    cached_tokens=count(cached) or 0,
                )
                counted = total
            for choice in _choices(chunk):
                delta, reason = _part(choice)
                text, reasoning = delta.content or "", delta.reasoning_content or delta.reasoning
                for part in delta.tool_calls or ():
                    calls[part.index] = _longer(calls.get(part.index), part)
                new = bool(text or reasoning or delta.tool_calls)
                counted += new
                whole = tuple(calls.values()) if reason is not None else ()
                calls = {} if whole else calls
                yield ChatDelta(text, reasoning or "", int(new), finish_reason=reason, calls=whole)
    raise HeadraceError("the server ended the stream before the answer's end")


def _events(reader: SSEReader, piece: bytes) -> list[Event]:
    try:
        return reader.feed(piece)
    except StreamTooLargeError as error:
        raise HeadraceError(f"the server sent too much at once: {error}") from error


def _choices(chunk: Mapping[str, Any]) -> list[Any]:
    choices = chunk.get("choices") or []
    if not isinstance(choices, list):
        raise HeadraceError(f"the server sent choices {shown(choices)}; a list is required")
    return choices


def _part(choice: object) -> tuple[_Delta, str | None]:
    """What is new of a choice, and why it ended if it did."""
    try:
        part = msgspec.convert(choice, _Choice)
    except msgspec.ValidationError as error:
        raise HeadraceError(
            f"the server sent {shown(choice)}, which is not a part of an answer: {error}"
        ) from error
    return part.delta or _Delta(), part.finish_reason


def _longer(call: Call | None, part: _CallPart) -> Call:
    """A call with the part of it that came."""
    call = call or Call("", "", "")
    function = part.function
    return Call(
        function.name or call.name,
        call.arguments + (function.arguments or ""),
        part.id or call.id,
    )


def _object(text: str) -> dict[str, Any]:
    values = object_of(text)
    if values is None:
        raise HeadraceError(f"the server sent {shown(text)}, which is not an event of a chat")
    return values


def _beginning(reply: httpx2.Response) -> bytes:
    body = b""
    for piece in reply.iter_bytes():
        body += piece
        if len(body) >= _MAX_ERROR_BYTES:
            break
    return body[:_MAX_ERROR_BYTES]


def _refused(status: int, body: bytes) -> HeadraceError:
    """The server's own words about a refusal."""
    error = object_of(body)
    if error is None:
        return HeadraceError(f"the server answered {status}: {shown(body[:200])}")
    message = _message(error) or f"the server answered {status}"
    detail = error.get("error")
    if isinstance(detail, dict) and detail.get("code") == ContextLengthError.CODE:
        return ContextLengthError(
            message,
            param=str(detail.get("param")),
            context_tokens=count(detail.get("n_ctx")) or 0,
            prompt_tokens=count(detail.get("n_prompt_tokens")),
        )
    if status == 401:
        message += f" (the key is read from {API_KEY_VARIABLE})"
    return RequestError(message) if status < 500 else HeadraceError(message)


def _message(body: Mapping[str, Any]) -> str:
    detail = body.get("error")
    message = detail.get("message") if isinstance(detail, dict) else detail
    return message if isinstance(message, str) else ""
