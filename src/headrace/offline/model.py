"""What LLM and AsyncLLM have in common: the text side of a model, without its engine.

Calls (`generate`, `chat`, ...) are written out in both classes, arguments included: one waits and
the other is awaited, typing has no shared arguments beside free ones (PEP 692: a TypedDict of
keyword arguments excludes `**variables`), and `help()` and editors show what a signature says.
`tests/offline/test_docs.py` holds the two alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.engine.sampling.defaults import SamplingDefaults
from headrace.offline.chat import ChatOptions
from headrace.offline.prompts import Message, PromptEncoder
from headrace.offline.vllm_names import ClassOfVllm, no_attribute
from headrace.structured.grammar_checks import GrammarChecks
from headrace.text.tokenizer import Tokenizer


class OfflineModel(metaclass=ClassOfVllm):
    """A model's tokenizer, chat template and sampling defaults, for callers in Python."""

    def __init__(self, encoder: PromptEncoder, defaults: SamplingDefaults) -> None:
        """encoder, defaults: of one model."""
        self._encoder = encoder
        self._defaults = defaults
        self._grammar_checks = GrammarChecks()
        self._num_requests = 0

    if not TYPE_CHECKING:  # a type checker has to find unknown names

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, "llm")

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self._encoder.tokenizer

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """What `generation_config` says of sampling parameters that a call leaves out, by name."""
        return self._defaults

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` can be used."""
        return self._encoder.has_chat_template

    def encode_chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        reasoning_effort: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **variables: Any,
    ) -> list[int]:
        """Token ids of a conversation, ready for the model's next message.

        Arguments and errors as of `chat`. Control tokens written in a message are text: only the
        template's own become tokens.
        """
        options = ChatOptions.of(
            tools,
            tool_choice,
            parallel_tool_calls,
            reasoning_effort,
            chat_template_kwargs,
            variables,
        )
        return self._encoder.chat_prompt(messages, options).token_ids

    def _next_name(self) -> str:
        """The name of one more request."""
        name = str(self._num_requests)
        self._num_requests += 1
        return name
