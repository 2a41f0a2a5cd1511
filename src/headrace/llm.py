"""LLM: the engine in this process, with text on both ends.

    llm = LLM("model.gguf")
    [result] = llm.generate("def fib(n):", SamplingParams(max_tokens=32), stop=["\\n\\n"])

Requests of one call run together. Several calls may be open at once (a stream half read while
`generate` runs): every step serves all of them. Not thread-safe. Ctrl-C is taken between steps:
what a call has open is then cancelled, and the next call finds a sound engine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.conversation.reading import AUTO
from headrace.engine.load import load_engine
from headrace.engine.messages import EngineInfo, Stats
from headrace.engine.params import SamplingParams as EngineParams
from headrace.engine.sampling.defaults import sampling_defaults, stated_defaults
from headrace.http.deferred_interrupt import DeferredInterrupt
from headrace.offline import arguments
from headrace.offline.chat import ChatOptions, ChatPrompt
from headrace.offline.model import OfflineModel
from headrace.offline.params import SamplingParams
from headrace.offline.progress import GenerationProgress, Progress, ProgressMeter, reporting
from headrace.offline.prompts import Message, Parsers, Prompt, PromptEncoder
from headrace.offline.request import OpenRequest, Options, choices, number_of_choices
from headrace.offline.results import GenerationDelta, GenerationResult, grouped
from headrace.offline.setup import checked_config, located
from headrace.offline.vllm_names import arguments_of_vllm

logger = logging.getLogger(__name__)

__all__ = ["LLM", "GenerationDelta", "GenerationProgress", "GenerationResult", "Message", "Prompt"]


class LLM(OfflineModel):
    """A model loaded into this process. engine_settings: the fields of EngineConfig."""

    def __init__(
        self,
        model: str | os.PathLike[str] = "",
        *,
        tool_call_parser: str = AUTO,
        reasoning_parser: str = AUTO,
        **engine_settings: Any,
    ) -> None:
        """model: a GGUF file, a Hugging Face folder, or a name as for `headrace serve`.

        The embedded model without one. A hub id that is not on this disk is fetched, unless
        offline=True; the logger headrace.llm tells of every file at level INFO.
        tool_call_parser, reasoning_parser: the formats in which the model writes calls and
        reasoning, by the names that the flags of `headrace serve` take; "auto" is what its chat
        template shows, "none" reads nothing.
        Raises HeadraceError where it cannot be loaded, ConfigError for a setting that is unknown or
        out of range.
        """
        parsers = Parsers.of(tool_call_parser, reasoning_parser)
        config = located(checked_config("LLM", model, engine_settings), logger)
        stated_defaults(config.generation_config)  # a wrong path fails before weights are read
        self._core, checkpoint = load_engine(config)
        super().__init__(
            PromptEncoder.of(checkpoint, config, parsers),
            sampling_defaults(checkpoint, config.generation_config),
        )
        self._requests: dict[str, OpenRequest] = {}

    @property
    def info(self) -> EngineInfo:
        """What the engine is."""
        return self._core.info()

    @property
    def stats(self) -> Stats:
        """What the engine has done so far."""
        return self._core.stats()

    @arguments_of_vllm
    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        progress: Progress = None,
    ) -> list[GenerationResult]:
        """Continue every prompt, all together; results in the order of the prompts.

        prompts: a text, texts, or lists of token ids. params: for all, or one per prompt; what they
        leave out of `sampling_defaults` is as there.
        n: answers to each prompt; the first is the result, `result.choices` are all of them.
        stop: texts that end an answer; min_tokens holds for them too.
        priority, timeout_s: of every request, as in Submit (engine/messages.py).
        progress: True shows a bar on stderr, False none, None one where stderr is a terminal and
        there are several answers to wait for; a callable gets a GenerationProgress.
        Raises RequestError, with nothing left running, where one cannot be served or an argument
        is of another type. Integers of NumPy and arrays of them are taken.
        """
        listed = arguments.prompts(prompts)
        count = number_of_choices(n)
        options = Options.of(stop, cache_salt, priority, timeout_s)
        encoded, made = self._encoder.prepared(listed, params, self._defaults, self._grammar_checks)
        return self._answers(encoded, choices(made, count), options, progress)

    def _answers(
        self,
        prompts: Sequence[list[int] | ChatPrompt],
        each: Sequence[EngineParams],
        options: Options,
        progress: Progress,
    ) -> list[GenerationResult]:
        """Results of the prompts. each: the parameters of all answers, prompt by prompt."""
        count = max(1, len(each) // max(1, len(prompts)))
        open_requests: list[OpenRequest] = []
        with reporting(progress, len(each)) as meter:
            try:
                for index, prompt in enumerate(prompts):
                    for own in each[index * count : (index + 1) * count]:
                        open_requests.append(self._make(prompt, own, options, meter))
                        self._submit(open_requests[-1])
                for request in open_requests:
                    while request.submit.request_id in self._requests:
                        self._step()
                return grouped(
                    [request.result(request.arrived) for request in open_requests], count
                )
            finally:
                for request in open_requests:
                    self._close(request)

    @arguments_of_vllm
    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        n: int = 1,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        **variables: Any,
    ) -> GenerationResult:
        """The model's next message, read into content, reasoning and tool calls.

        tools: functions that the model may call, as in OpenAI's API: {"type": "function",
        "function": {name, description, parameters}}. tool_choice: "none", "auto", "required" or
        {"type": "function", "function": {"name": ...}}; calls that are required cannot be
        malformed. parallel_tool_calls: whether an answer may have several.
        reasoning_effort, chat_template_kwargs, variables: of the chat template, as
        enable_thinking.
        Raises TemplateError for a model without a template or messages it refuses.
        """
        chat_options = ChatOptions.of(
            tools,
            tool_choice,
            parallel_tool_calls,
            reasoning_effort,
            chat_template_kwargs,
            variables,
            arguments.thinking_tokens_of(params),
        )
        count = number_of_choices(n)
        options = Options.of(stop, cache_salt, priority, timeout_s)
        prompt, own = self._chat(messages, params, chat_options)
        (result,) = self._answers([prompt], choices([own], count), options, progress=False)
        return result

    @arguments_of_vllm
    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> Iterator[GenerationDelta]:
        """Continue one prompt, piece by piece; the texts add up to what `generate` gives.

        The request is submitted with the first piece asked for; closing the iterator cancels it.
        """
        given, checks = [arguments.prompt(prompt)], self._grammar_checks
        options = Options.of(stop, cache_salt, priority, timeout_s)
        arguments.check_params(params)
        [ids], [own] = self._encoder.prepared(given, params, self._defaults, checks)
        yield from self._deltas(self._make(ids, own, options))

    @arguments_of_vllm
    def stream_chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        **variables: Any,
    ) -> Iterator[GenerationDelta]:
        """The model's next message, piece by piece; the deltas add up to what `chat` gives.

        Arguments and errors as of `chat`, cancelling as of `stream`.
        """
        chat_options = ChatOptions.of(
            tools,
            tool_choice,
            parallel_tool_calls,
            reasoning_effort,
            chat_template_kwargs,
            variables,
            arguments.thinking_tokens_of(params),
        )
        options = Options.of(stop, cache_salt, priority, timeout_s)
        prompt, own = self._chat(messages, params, chat_options)
        yield from self._deltas(self._make(prompt, own, options))

    def _chat(
        self, messages: Sequence[Message], params: object, options: ChatOptions
    ) -> tuple[ChatPrompt, EngineParams]:
        """The prompt of a conversation, and the parameters of its answers."""
        checks = self._grammar_checks
        own = arguments.sampling_params(params, self._defaults, checks)
        prompt = self._encoder.chat_prompt(messages, options)
        most = arguments.thinking_tokens_of(params)
        return prompt, prompt.held(own, options, checks, max_reasoning_tokens=most)

    def _deltas(self, request: OpenRequest) -> Iterator[GenerationDelta]:
        """The deltas of a request up to its last; closing gives up what the engine still does."""
        try:
            self._submit(request)
            while True:
                while not request.arrived:
                    self._step()
                delta = request.arrived.popleft()
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            self._close(request)

    def _make(
        self,
        prompt: list[int] | ChatPrompt,
        params: EngineParams,
        options: Options,
        meter: ProgressMeter | None = None,
    ) -> OpenRequest:
        return OpenRequest.make(self._next_name(), prompt, params, options, self._encoder, meter)

    def _submit(self, request: OpenRequest) -> None:
        """From here on whoever made `request` has to close it, also where this raises."""
        with DeferredInterrupt():
            self._core.submit(request.submit)
            self._requests[request.submit.request_id] = request

    def _step(self) -> None:
        """One step of the engine; what it gave goes to the requests, read or not."""
        gave: list[tuple[OpenRequest, GenerationDelta]] = []
        with DeferredInterrupt():
            for output in self._core.step():
                request = self._requests.get(output.request_id)
                if request is None:
                    continue
                delta = request.delta(output)
                request.arrived.append(delta)
                gave.append((request, delta))
                if output.cache_miss is not None:
                    logger.debug("request %s: not cached: %s", output.request_id, output.cache_miss)
                if delta.finish_reason is not None:
                    self._close(request)
        for request, delta in gave:
            request.count(delta)

    def _close(self, request: OpenRequest) -> None:
        """Hear no more of a request, and give it up in the engine where it has not ended there."""
        name = request.submit.request_id
        with DeferredInterrupt():
            if self._requests.pop(name, None) is not None:
                self._core.cancel(name)
