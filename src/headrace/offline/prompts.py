"""The text side of a model for callers in Python: prompts and conversations to token ids."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.config.settings import EngineConfig
from headrace.conversation.reading import answer_format, call_marks, reading_of, special_tokens
from headrace.conversation.request import argument_schemas, template_tools
from headrace.errors import TemplateError
from headrace.offline import arguments
from headrace.offline.chat import ChatOptions, ChatPrompt
from headrace.text.no_tokenizer import tokenizer_or_none
from headrace.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headrace.answer_formats.formats import AnswerFormat
    from headrace.text import ChatTemplate
    from headrace.weights.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


class PromptEncoder:
    """Tokenizer and chat template of one model. Not thread-safe: the template is made when needed.

    tokenizer: the model's, for whatever else a caller wants of it.
    """

    def __init__(self, tokenizer: Tokenizer, templates: Mapping[str, str]) -> None:
        self.tokenizer = tokenizer
        self._templates = templates
        self._template: ChatTemplate | None = None
        self._format: AnswerFormat | None = None
        self._special: dict[str, int] = {}

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: EngineConfig) -> PromptEncoder:
        """That of a checkpoint; raises HeadraceError where its tokenizer cannot be used."""
        if checkpoint.left_out:
            logger.warning(
                "left out of the model: %s; text alone is read", checkpoint.left_out_words
            )
        tokenizer = tokenizer_or_none(
            checkpoint.tokenizer, checkpoint.eos_token_ids, pre=config.tokenizer_pre
        )
        return cls(tokenizer, checkpoint.chat_templates)

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

    def chat_prompt(self, messages: Sequence[Message], options: ChatOptions) -> ChatPrompt:
        """A conversation, ready for the model's next message, and how that is read.

        Control tokens written in a message are text: only the template's own become tokens.
        Raises TemplateError for a model without a template or messages it refuses.
        """
        if self._template is None:
            from headrace.text import ChatTemplate

            if not self._templates:
                raise TemplateError("this model has no chat template; use generate() with a text")
            self._template = ChatTemplate.for_tokenizer(self._templates, self.tokenizer)
        if self._format is None:
            self._format = answer_format(self._template)
            self._special = special_tokens(self.tokenizer)
        segments = self._template.render_segments(
            arguments.messages(messages),
            control_tokens=self.tokenizer.control_tokens,
            tools=template_tools(options.tools),
            **options.variables,
        )
        reading = reading_of(
            self._format,
            self.tokenizer,
            tools=argument_schemas(options.tools),
            may_call=options.choice_of_tools.may_call,
            prompt="".join(text for text, _ in segments),
            continues=bool(options.variables.get("continue_final_message")),
        )
        may_call = options.choice_of_tools.may_call or not options.tools
        return ChatPrompt(
            self.tokenizer.encode_segments(segments),
            reading,
            self._format,
            self._special,
            () if may_call else call_marks(self._format, self.tokenizer),
        )
