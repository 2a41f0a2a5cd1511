"""The model that is served: its names, its engine and its text side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.answer_formats.call_syntax import NO_FORMAT
from headrace.answer_formats.formats import AnswerFormat, choose_format
from headrace.conversation.format_marks import FormatMarks, special_tokens
from headrace.engine.limits import Limits
from headrace.engine.sampling.defaults import SamplingDefaults
from headrace.errors import RequestError, TemplateError, shown
from headrace.protocol.body_bounds import BodyBounds
from headrace.protocol.openai.sampling import SamplingFields
from headrace.server.api_error import MODEL_NOT_FOUND
from headrace.server.model.engine import EngineLike
from headrace.server.model.templates import RequestTemplates
from headrace.text import TextStream

if TYPE_CHECKING:
    from headrace.text import ChatTemplate, Tokenizer

MIN_TEXT_TOKENS = 2**20
TEXT_CONTEXTS = 4
"""With `MIN_TEXT_TOKENS`: a text has so many contexts at most, or so many tokens, whatever is more.
A million tokens take some 300 MB while they are made and sent."""

FURTHER_VALUES = 2**16
"""Names and values of a body beside biases, allowed tokens and ids."""


@dataclass(frozen=True)
class ServedModel:
    """The parts that a request needs once the model is loaded."""

    names: tuple[str, ...]
    """What clients may call it; the first is in replies."""
    engine: EngineLike
    tokenizer: Tokenizer
    template: ChatTemplate | None
    fingerprint: str
    """Changes with weights, quantization and settings that change results."""
    created_s: int
    """Unix time the server was started."""
    max_logprobs: int
    root: str = ""
    """Name of the file or folder."""
    file_format: str = ""
    """"gguf" or "safetensors"."""
    file_type: object = None
    """The number of its mix of codecs, as a GGUF file has it (general.file_type); None without."""
    num_parameters: int = 0
    """Of all tensors of the files; 0 where that is not known."""
    template_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Variables of every rendering."""
    left_out: str = ""
    """Modules of the files that are not part of the model, in words; "" for a whole one."""
    answer_format: AnswerFormat = NO_FORMAT
    """How it writes reasoning and tool calls."""
    sampling_defaults: SamplingDefaults = field(default_factory=dict)
    """The values of sampling fields that a request leaves out."""
    trust_request_template: bool = False
    """Whether a request may bring a chat template of its own."""
    excludes_unused_tools: bool = False
    """Whether the prompt is without the tools of a request that lets none be called."""

    @property
    def name(self) -> str:
        """The name in replies."""
        return self.names[0]

    @cached_property
    def request_templates(self) -> RequestTemplates:
        """Chat templates that requests bring."""
        return RequestTemplates(self.tokenizer, trusted=self.trust_request_template)

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """Texts of tokens that no text is spelled with, and their ids."""
        return special_tokens(self.tokenizer)

    @property
    def limits(self) -> Limits:
        """What requests are held against."""
        return Limits.of(self.engine.info, self.max_logprobs)

    @property
    def max_text_tokens(self) -> int:
        """The most tokens of a text that need not fit into the context, and of its ids."""
        return _max_text_tokens(self.limits)

    @property
    def body_bounds(self) -> BodyBounds:
        """As much as the fields of a body can use: the longest text as ids, a bias for each token
        and each token allowed, and the messages."""
        limits = self.limits
        return BodyBounds(
            names=limits.vocab_size + FURTHER_VALUES,
            values=_max_text_tokens(limits) + 2 * limits.vocab_size + FURTHER_VALUES,
        )

    def check_name(self, name: str | None) -> None:
        """Raise RequestError (a 404) for a name that is not served; None stands for the model."""
        if name is None or name in self.names:
            return
        raise RequestError(
            f"the model {shown(name)} does not exist here; served: {', '.join(self.names)}",
            param="model",
            code=MODEL_NOT_FOUND,
        )

    def chat_template(self) -> ChatTemplate:
        """The template; TemplateError for a model that has none."""
        if self.template is None:
            raise TemplateError(
                f"{self.name} has no chat template; use /v1/completions, or start the server with "
                "--chat-template FILE"
            )
        return self.template

    @cached_property
    def marks(self) -> FormatMarks:
        """How it writes reasoning and calls, in text and in ids."""
        source = "" if self.template is None else self.template.source_text
        return FormatMarks(self.answer_format, self.tokenizer, source)

    def marks_after(self, template: str | None) -> FormatMarks:
        """The same after a template; None for the model's own."""
        if template is None:
            return self.marks
        return FormatMarks(choose_format(template), self.tokenizer, template)

    def text_stream(
        self,
        prompt_ids: Sequence[int],
        fields: SamplingFields,
        *,
        text_offset: int = 0,
        kept_special_ids: Collection[int] = (),
    ) -> TextStream:
        """A fresh stream from the ids that follow `prompt_ids` to the text the client wants.

        text_offset: where that text begins, in characters. kept_special_ids: special tokens that
        it has even so.
        """
        return TextStream(
            self.tokenizer,
            prompt_ids=prompt_ids,
            stops=fields.stop_strings,
            skip_special_tokens=fields.skip_special_tokens,
            kept_special_ids=kept_special_ids,
            include_stop=fields.include_stop_str_in_output,
            text_offset=text_offset,
            min_tokens=fields.min_tokens,
        )


def _max_text_tokens(limits: Limits) -> int:
    return max(MIN_TEXT_TOKENS, TEXT_CONTEXTS * limits.context_tokens)
