"""LLM: the engine in this process, with text on both ends.

    llm = LLM("model.gguf")
    [result] = llm.generate("def fib(n):", SamplingParams(max_tokens=32), stop=["\\n\\n"])

Requests of one call run together. Several calls may be open at once (a stream half read while
`generate` runs): every step serves all of them. Not thread-safe. Stop strings live here: the
engine knows ids only, and a request that reached one is cancelled in it.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine import arguments
from headrace.engine.load import load_engine
from headrace.engine.messages import EngineInfo, FinishReason, Output, Stats, Submit, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.errors import ConfigError, TemplateError
from headrace.text.stream import TextStream
from headrace.text.tokenizer import Tokenizer, load_tokenizer
from headrace.weights.store.resolve import obtain_model
from headrace.weights.user_path import user_path

if TYPE_CHECKING:
    from headrace.text import ChatTemplate
    from headrace.weights.store.fetch import FetchProgress

logger = logging.getLogger(__name__)

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


@dataclass(frozen=True)
class GenerationDelta:
    """What a step added: text that is settled, and tokens whose text may still be held back.

    The last one has a finish_reason. stop_reason: the stop string or the id from stop_token_ids
    that ended the text. error: the cause where finish_reason is "error".
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    cached_tokens: int = 0


@dataclass(frozen=True)
class GenerationResult:
    """One prompt's answer. Fields as in GenerationDelta; logprobs is None if none were asked for.

    token_ids include the id that ended the text and, of a stop string, the token that completed it.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    cached_tokens: int = 0


class LLM:
    """A model loaded into this process. engine_settings: the fields of EngineConfig."""

    def __init__(self, model: str | os.PathLike[str] = "", **engine_settings: Any) -> None:
        """model: a GGUF file, a Hugging Face folder, or a name as for `headrace serve`.

        The embedded model without one. A hub id that is not on this disk is fetched, unless
        offline=True; the logger headrace.llm tells of every file at level INFO.
        Raises HeadraceError where it cannot be loaded, ConfigError for a setting that is unknown or
        out of range.
        """
        path = _absolute(model) if isinstance(model, os.PathLike) else model
        config = _config({"model": path, **engine_settings})
        located = obtain_model(config.model, os.environ, _log_fetch, offline=config.offline)
        config = msgspec.structs.replace(config, model=str(located.path))
        self._core, checkpoint = load_engine(config)
        self.tokenizer: Tokenizer = load_tokenizer(
            checkpoint.tokenizer, checkpoint.eos_token_ids, pre=config.tokenizer_pre
        )
        self._templates = checkpoint.chat_templates
        self._template: ChatTemplate | None = None
        self._requests: dict[str, _Open] = {}
        self._num_requests = 0

    @property
    def info(self) -> EngineInfo:
        """What the engine is."""
        return self._core.info()

    @property
    def stats(self) -> Stats:
        """What the engine has done so far."""
        return self._core.stats()

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return bool(self._templates)

    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
    ) -> list[GenerationResult]:
        """Continue every prompt, all together; results in the order of the prompts.

        prompts: a text, texts, or lists of token ids. params: for all, or one per prompt.
        Raises RequestError, with nothing left running, where one cannot be served or an argument
        is of another type. Integers of NumPy and arrays of them are taken.
        """
        listed = arguments.prompts(prompts)
        each = arguments.params_for(params, len(listed))
        ends = arguments.stop_strings(stop)
        salt = arguments.text(cache_salt, "cache_salt")
        open_requests: list[_Open] = []
        try:
            for prompt, one in zip(listed, each, strict=True):
                open_requests.append(self._open(self._encode(prompt), one, ends, salt))
            return [_result(request, list(self._read(request))) for request in open_requests]
        finally:
            for request in open_requests:
                self._close(request)

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        **variables: Any,
    ) -> GenerationResult:
        """The model's next message. variables: of the chat template (enable_thinking, ...).

        Raises TemplateError for a model without a template or messages it refuses.
        """
        ids = self.encode_chat(messages, **variables)
        (result,) = self.generate([ids], params, stop=stop, cache_salt=cache_salt)
        return result

    def encode_chat(self, messages: Sequence[Message], **variables: Any) -> list[int]:
        """Token ids of a conversation, ready for the model's next message.

        Control tokens written in a message are text: only the template's own become tokens.
        """
        if self._template is None:
            from headrace.text import ChatTemplate

            if not self._templates:
                raise TemplateError("this model has no chat template; use generate() with a text")
            self._template = ChatTemplate.for_tokenizer(self._templates, self.tokenizer)
        segments = self._template.render_segments(
            arguments.messages(messages), control_tokens=self.tokenizer.control_tokens, **variables
        )
        return self.tokenizer.encode_segments(segments)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
    ) -> Iterator[GenerationDelta]:
        """Continue one prompt, piece by piece; the texts add up to what `generate` gives.

        The request is submitted with the first piece asked for; closing the iterator cancels it.
        """
        request = self._open(
            self._encode(arguments.prompt(prompt)),
            arguments.sampling_params(params),
            arguments.stop_strings(stop),
            arguments.text(cache_salt, "cache_salt"),
        )
        try:
            yield from self._read(request)
        finally:
            self._close(request)

    def _encode(self, prompt: str | list[int]) -> list[int]:
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt, add_special_tokens=True)
            if self.tokenizer.has_double_bos(ids):
                logger.warning(
                    "a prompt begins with two beginning-of-text tokens, which costs quality: the "
                    "tokenizer adds one, so leave it out of the text"
                )
            return ids
        return prompt

    def _open(
        self, ids: list[int], params: SamplingParams, stops: tuple[str, ...], cache_salt: str
    ) -> _Open:
        request = _Open(
            request_id=str(self._num_requests),
            prompt_token_ids=ids,
            text=TextStream(self.tokenizer, prompt_ids=ids, stops=stops),
            wants_logprobs=params.logprobs is not None,
        )
        self._core.submit(Submit(request.request_id, ids, params, cache_salt=cache_salt))
        self._num_requests += 1
        self._requests[request.request_id] = request
        return request

    def _step(self) -> None:
        """One step of the engine; what it gave goes to the requests, read or not."""
        for output in self._core.step():
            request = self._requests.get(output.request_id)
            if request is None:
                continue
            delta = _delta(request.text, output)
            request.arrived.append(delta)
            if output.cache_miss is not None:
                logger.debug("request %s: not cached: %s", output.request_id, output.cache_miss)
            if delta.finish_reason is not None:
                self._close(request)

    def _read(self, request: _Open) -> Iterator[GenerationDelta]:
        while True:
            while not request.arrived:
                self._step()
            delta = request.arrived.popleft()
            yield delta
            if delta.finish_reason is not None:
                return

    def _close(self, request: _Open) -> None:
        """Hear no more of a request, and give it up in the engine where it has not ended there."""
        if self._requests.pop(request.request_id, None) is not None:
            self._core.cancel(request.request_id)


@dataclass(frozen=True)
class _Open:
    """A request on its way, and the pieces of it that nobody has read yet."""

    request_id: str
    prompt_token_ids: list[int]
    text: TextStream
    wants_logprobs: bool
    arrived: deque[GenerationDelta] = field(default_factory=deque)


def _delta(stream: TextStream, output: Output) -> GenerationDelta:
    """The piece of an output; a stop string in it ends the text, whatever the engine says."""
    taken = stream.take(output.token_ids, output.finish_reason)
    stopped = taken.stop is not None
    return GenerationDelta(
        text=taken.text,
        token_ids=tuple(output.token_ids[: taken.num_tokens]),
        logprobs=tuple((output.logprobs or [])[: taken.num_tokens]),
        finish_reason="stop" if stopped else output.finish_reason,
        stop_reason=taken.stop if stopped else output.stop_reason,
        error=output.error,
        cached_tokens=output.cached_tokens,
    )


def _result(request: _Open, deltas: list[GenerationDelta]) -> GenerationResult:
    last = deltas[-1]
    assert last.finish_reason is not None
    logprobs = tuple(one for delta in deltas for one in delta.logprobs)
    return GenerationResult(
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        finish_reason=last.finish_reason,
        prompt_token_ids=tuple(request.prompt_token_ids),
        logprobs=logprobs if request.wants_logprobs else None,
        stop_reason=last.stop_reason,
        error=last.error,
        cached_tokens=max(delta.cached_tokens for delta in deltas),
    )


def _absolute(path: os.PathLike[str]) -> str:
    """A path that cannot be taken for a name: whoever gives a PathLike means a file."""
    return str(user_path(os.fspath(path)).absolute())


def _log_fetch(at: FetchProgress) -> None:
    if at.state == "begun":
        place = f"{at.number} of {at.num_files}"
        logger.info("fetching %s (%s, %d bytes)", at.file, place, at.size_bytes)


def _config(settings: dict[str, Any]) -> EngineConfig:
    try:
        return msgspec.convert(settings, EngineConfig, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").split("[")[0]
        named = f"{name}={settings[name]!r}" if name in settings else "..."
        raise ConfigError(f"LLM({named}): {problem}") from error
