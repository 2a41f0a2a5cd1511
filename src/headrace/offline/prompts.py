"""The text side of a model for callers in Python: prompts and conversations to token ids."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.config.settings import EngineConfig
from headrace.conversation.format_marks import FormatMarks, special_tokens
from headrace.conversation.reading import AUTO, answer_format, reading_of
from headrace.conversation.request import argument_schemas, template_tools
from headrace.conversation.thinking import start_after
from headrace.engine.params import SamplingParams
from headrace.engine.sampling.defaults import SamplingDefaults
from headrace.errors import ConfigError, RequestError, TemplateError
from headrace.offline import arguments
from headrace.offline.chat import ChatOptions, ChatPrompt
from headrace.offline.results import GenerationResult
from headrace.offline.thinking import bounded
from headrace.structured.grammar_checks import GrammarChecks
from headrace.text.no_tokenizer import tokenizer_or_none
from headrace.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headrace.answer_formats.formats import AnswerFormat
    from headrace.text import ChatTemplate
    from headrace.weights.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

Prompt = str | Sequence[int]
Message = Mapping[str, Any] | GenerationResult
"""In the form of OpenAI's API, or an answer of `chat`, which stands for its message."""


class Parsers(NamedTuple):
    """The formats in which a model writes, by the names that the server's flags of these names
    take: "auto" is what the chat template shows, "none" reads nothing."""

    tool_call_parser: str = AUTO
    reasoning_parser: str = AUTO

    @classmethod
    def of(cls, tool_call_parser: object, reasoning_parser: object) -> Parsers:
        """From a caller's arguments. Raises ConfigError for a name that is unknown."""
        given = {"tool_call_parser": tool_call_parser, "reasoning_parser": reasoning_parser}
        for name, value in given.items():
            if not isinstance(value, str):
                raise ConfigError(f"{name} is {value!r}; it must be the name of a format")
        parsers = cls(str(tool_call_parser), str(reasoning_parser))
        parsers.format_of(None)  # raises
        return parsers

    def format_of(self, template: ChatTemplate | None) -> AnswerFormat:
        """How a model with this template writes; without one, only what is named is known."""
        return answer_format(template, calls=self.tool_call_parser, reasoning=self.reasoning_parser)


class PromptEncoder:
    """Tokenizer and chat template of one model. Not thread-safe: the template is made when needed.

    tokenizer: the model's, for whatever else a caller wants of it. parsers: as the model writes
    calls and reasoning.
    """

    def __init__(
        self, tokenizer: Tokenizer, templates: Mapping[str, str], parsers: Parsers
    ) -> None:
        self.tokenizer = tokenizer
        self._templates = templates
        self._parsers = parsers
        self._template: ChatTemplate | None = None
        self._marks: FormatMarks | None = None
        self._special: dict[str, int] = {}

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: EngineConfig, parsers: Parsers) -> PromptEncoder:
        """That of a checkpoint; raises HeadraceError where its tokenizer cannot be used."""
        if checkpoint.left_out:
            logger.warning(
                "left out of the model: %s; text alone is read", checkpoint.left_out_words
            )
        tokenizer = tokenizer_or_none(
            checkpoint.tokenizer, checkpoint.eos_token_ids, pre=config.tokenizer_pre
        )
        return cls(tokenizer, checkpoint.chat_templates, parsers)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be encoded."""
        return bool(self._templates) and self.tokenizer.has_text

    def encode(self, prompt: str | list[int]) -> list[int]:
        """Ids of a text, with what the tokenizer adds to every text; ids as they are."""
        if not isinstance(prompt, str):
            return prompt
        ids = self.tokenizer.encode(prompt, add_special_tokens=True)
        if self.tokenizer.has_double_bos(ids):
            logger.warning(
                "a prompt begins with two beginning-of-text tokens, which lowers quality: "
                "the tokenizer adds one, so omit it from the text"
            )
        return ids

    def prepared(
        self,
        prompts: Sequence[str | list[int]],
        params: object,
        defaults: SamplingDefaults,
        checks: GrammarChecks,
    ) -> tuple[list[list[int]], list[SamplingParams]]:
        """The ids and the parameters of every prompt, as `arguments.params_for` takes them."""
        made = arguments.params_for(params, len(prompts), defaults, checks)
        budgets = arguments.thinking_tokens(params, len(prompts))
        encoded = [self.encode(prompt) for prompt in prompts]
        bounds = zip(made, budgets, encoded, strict=True)
        return encoded, [self._bounded(own, budget, ids) for own, budget, ids in bounds]

    def _bounded(
        self, params: SamplingParams, max_tokens: int | None, token_ids: list[int]
    ) -> SamplingParams:
        """The parameters with the budget of what follows a prompt of ids."""
        if max_tokens is None or not self.tokenizer.has_text:
            return params
        self._read_template()
        assert self._marks is not None
        start = start_after(token_ids, self._marks)
        if start is not None and params.grammar is not None:
            raise RequestError(
                "thinking_token_budget: what follows a prompt has its form from its first token "
                "on, so there is no reasoning to bound; omit one of the two, or use chat(), where "
                "the form follows the reasoning",
                param="thinking_token_budget",
            )
        return bounded(params, max_tokens, start)

    def _read_template(self) -> None:
        """Make the template, where there is one, and the format of answers; once."""
        if self._marks is not None:
            return
        if self._templates:
            from headrace.text import ChatTemplate

            self._template = ChatTemplate.for_tokenizer(self._templates, self.tokenizer)
        self._marks = FormatMarks(self._parsers.format_of(self._template), self.tokenizer)
        self._special = special_tokens(self.tokenizer)

    def chat_prompt(self, messages: Sequence[Message], options: ChatOptions) -> ChatPrompt:
        """A conversation, ready for the model's next message, and how that is read.

        Control tokens written in a message are text: only the template's own become tokens.
        Raises TemplateError for a model without a template or messages it refuses.
        """
        if not self._templates:
            raise TemplateError("this model has no chat template; use generate() with a text")
        self._read_template()
        assert self._template is not None and self._marks is not None
        segments = self._template.render_segments(
            arguments.messages(messages),
            control_tokens=self.tokenizer.control_tokens,
            tools=template_tools(options.tools),
            **options.variables,
        )
        reading = reading_of(
            self._marks,
            tools=argument_schemas(options.tools),
            may_call=options.choice_of_tools.may_call,
            prompt="".join(text for text, _ in segments),
            continues=bool(options.variables.get("continue_final_message")),
        )
        ids = self.tokenizer.encode_segments(segments)
        return ChatPrompt(ids, reading, self._marks, self._special)
