"""AsyncLLM: an engine in a process of its own, with text on both ends, for asyncio.

    async with await AsyncLLM.start("model.gguf") as llm:
        [result] = await llm.generate("def fib(n):", SamplingParams(max_tokens=32))
        async for delta in llm.stream("def fib(n):"):
            print(delta.text, end="")

Any number of tasks of one event loop may call at once: their requests run together. A task that is
cancelled while it waits takes its requests with it. Arguments, results and errors are those of LLM,
and so is every token.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from headrace.config.settings import EngineConfig
from headrace.conversation.reading import AUTO
from headrace.engine.messages import EngineInfo, Loading, Output, Stats
from headrace.engine.params import SamplingParams as EngineParams
from headrace.engine.process.client import EngineClient
from headrace.engine.sampling.defaults import SamplingDefaults, sampling_defaults
from headrace.offline import arguments
from headrace.offline.chat import ChatOptions, ChatPrompt
from headrace.offline.model import OfflineModel
from headrace.offline.params import SamplingParams
from headrace.offline.progress import Progress, ProgressMeter, reporting
from headrace.offline.prompts import Message, Parsers, Prompt, PromptEncoder
from headrace.offline.request import OpenRequest, Options, choices, number_of_choices
from headrace.offline.results import GenerationDelta, GenerationResult, grouped
from headrace.offline.setup import checked_config, located
from headrace.offline.vllm_names import arguments_of_vllm
from headrace.weights.open import open_checkpoint
from headrace.weights.store.resolve import resolve_model

logger = logging.getLogger(__name__)


class AsyncLLM(OfflineModel):
    """A model loaded into a process of its own. Made by `start`; used from one event loop."""

    def __init__(
        self, engine: EngineClient, encoder: PromptEncoder, defaults: SamplingDefaults
    ) -> None:
        """engine: one that serves the model that `encoder` and `defaults` are of. `start` makes
        all three."""
        super().__init__(encoder, defaults)
        self._engine = engine

    @classmethod
    async def start(
        cls,
        model: str | os.PathLike[str] = "",
        *,
        on_loading: Callable[[Loading], None] | None = None,
        tool_call_parser: str = AUTO,
        reasoning_parser: str = AUTO,
        **engine_settings: Any,
    ) -> AsyncLLM:
        """Load a model; arguments as of LLM. `close` it, or use it in `async with`.

        on_loading: called meanwhile with how far it is. Raises HeadraceError where it cannot be
        loaded, ConfigError for a setting that is unknown or out of range. Cancelling ends it all.
        """
        parsers = Parsers.of(tool_call_parser, reasoning_parser)
        config = checked_config("AsyncLLM.start", model, engine_settings)
        config = await asyncio.to_thread(located, config, logger)
        engine_task = asyncio.ensure_future(EngineClient.start(config, on_loading=on_loading))
        try:
            encoder, defaults = await asyncio.to_thread(_load_text, config, parsers)
            return cls(await engine_task, encoder, defaults)
        except BaseException:
            engine_task.cancel()
            await asyncio.gather(engine_task, return_exceptions=True)
            if not engine_task.cancelled() and engine_task.exception() is None:
                await engine_task.result().close()
            raise

    async def close(self) -> None:
        """End the engine process; open requests raise EngineDeadError. Idempotent."""
        await self._engine.close()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def info(self) -> EngineInfo:
        """What the engine is."""
        return self._engine.info

    @property
    def stats(self) -> Stats:
        """What the engine has done, as it said last: at most 50 ms ago while it is busy."""
        return self._engine.stats

    @property
    def alive(self) -> bool:
        """Whether requests can be served; once False it stays so."""
        return self._engine.alive

    @arguments_of_vllm
    async def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
        progress: Progress = False,
    ) -> list[GenerationResult]:
        """Continue every prompt, all together; arguments, results and errors as LLM.generate.

        progress: None is False here, since several calls may run at once; True and callables are
        as there. Raises EngineDeadError where the engine has ended.
        """
        listed = arguments.prompts(prompts)
        count = number_of_choices(n)
        options = Options.of(stop, cache_salt, priority, timeout_s)
        encoded, made = await self._prepared(listed, params)
        return await self._answers(
            encoded, choices(made, count), options, False if progress is None else progress
        )

    async def _answers(
        self,
        prompts: Sequence[list[int] | ChatPrompt],
        each: Sequence[EngineParams],
        options: Options,
        progress: Progress,
    ) -> list[GenerationResult]:
        """Results of the prompts. each: the parameters of all answers, prompt by prompt."""
        count = max(1, len(each) // max(1, len(prompts)))
        with reporting(progress, len(each)) as meter:
            pairs = [
                self._open(prompts[index // count], own, options, meter)
                for index, own in enumerate(each)
            ]
            return grouped(await _all_read(pairs), count)

    @arguments_of_vllm
    async def chat(
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
        """The model's next message; arguments, result and errors as of LLM.chat."""
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
        count = number_of_choices(n)
        prompt, own = await self._chat(messages, params, chat_options)
        (result,) = await self._answers([prompt], choices([own], count), options, progress=False)
        return result

    @arguments_of_vllm
    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        stop: str | Sequence[str] = (),
        cache_salt: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Continue one prompt, piece by piece; the texts add up to what `generate` gives.

        The request is submitted with the first piece asked for. Closing the iterator cancels it: a
        loop that is left early does so at once inside `contextlib.aclosing(llm.stream(...))`, and
        otherwise when the iterator is forgotten. Several steps may come as one delta to a reader
        that is behind.
        """
        given = [arguments.prompt(prompt)]
        options = Options.of(stop, cache_salt, priority, timeout_s)
        arguments.check_params(params)
        [ids], [own] = await self._prepared(given, params)
        request, outputs = self._open(ids, own, options)
        async with aclosing(_deltas(request, outputs)) as deltas:
            async for delta in deltas:
                yield delta

    @arguments_of_vllm
    async def stream_chat(
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
    ) -> AsyncGenerator[GenerationDelta, None]:
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
        prompt, own = await self._chat(messages, params, chat_options)
        request, outputs = self._open(prompt, own, options)
        async with aclosing(_deltas(request, outputs)) as deltas:
            async for delta in deltas:
                yield delta

    async def _chat(
        self, messages: Sequence[Message], params: SamplingParams | None, options: ChatOptions
    ) -> tuple[ChatPrompt, EngineParams]:
        """The prompt of a conversation, and the parameters of its answers."""
        prompt = self._encoder.chat_prompt(messages, options)
        defaults, checks = self._defaults, self._grammar_checks

        def bound() -> EngineParams:
            own = arguments.sampling_params(params, defaults, checks)
            most = arguments.thinking_tokens_of(params)
            return prompt.held(own, options, checks, max_reasoning_tokens=most)

        return prompt, await asyncio.to_thread(bound)

    async def _prepared(
        self, prompts: Sequence[str | list[int]], params: object
    ) -> tuple[list[list[int]], list[EngineParams]]:
        """In a thread: compiling a grammar or a long text would hold up every other task."""
        defaults, checks = self._defaults, self._grammar_checks
        return await asyncio.to_thread(self._encoder.prepared, prompts, params, defaults, checks)

    def _open(
        self,
        prompt: list[int] | ChatPrompt,
        params: EngineParams,
        options: Options,
        meter: ProgressMeter | None = None,
    ) -> tuple[OpenRequest, AsyncGenerator[Output, None]]:
        """A request that is checked, and submitted when its outputs are first asked for."""
        name = self._next_name()
        request = OpenRequest.make(name, prompt, params, options, self._encoder, meter)
        return request, self._engine.generate(request.submit)


def _load_text(config: EngineConfig, parsers: Parsers) -> tuple[PromptEncoder, SamplingDefaults]:
    checkpoint = open_checkpoint(resolve_model(config.model))
    defaults = sampling_defaults(checkpoint, config.generation_config)
    return PromptEncoder.of(checkpoint, config, parsers), defaults


async def _deltas(
    request: OpenRequest, outputs: AsyncGenerator[Output, None]
) -> AsyncGenerator[GenerationDelta, None]:
    """The deltas of a request up to its last; what the engine still does for it is given up."""
    async with aclosing(outputs):
        async for output in outputs:
            delta = request.delta(output)
            request.count(delta)
            yield delta
            if delta.finish_reason is not None:
                return


async def _read(request: OpenRequest, outputs: AsyncGenerator[Output, None]) -> GenerationResult:
    async with aclosing(_deltas(request, outputs)) as deltas:
        return request.result([delta async for delta in deltas])


async def _all_read(
    pairs: Sequence[tuple[OpenRequest, AsyncGenerator[Output, None]]],
) -> list[GenerationResult]:
    """Results in order. When one fails, or the caller is cancelled, the others are given up."""
    tasks = [asyncio.ensure_future(_read(request, outputs)) for request, outputs in pairs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
