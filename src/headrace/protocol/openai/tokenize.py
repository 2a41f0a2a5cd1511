"""/tokenize and /detokenize, in vLLM's shapes and in llama-server's, which differ in names."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.errors import RequestError
from headrace.protocol.openai.chat import Messages, check_messages
from headrace.protocol.openai.sampling import TokenId
from headrace.protocol.openai.template import (
    AddGenerationPrompt,
    ContinueFinalMessage,
    OwnTemplate,
    ServedName,
    TemplateVariables,
    check_turn,
    opens_turn,
)
from headrace.protocol.openai.tools import Tools, check_tools
from headrace.protocol.request import INVALID_VALUE, MISSING_FIELD

_TEXTS = ("prompt", "messages", "content")


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /tokenize: one of `prompt`, `messages` and `content`."""

    model: ServedName = None
    prompt: Annotated[str | None, Meta(description="Text to tokenize, as completions do.")] = None
    messages: Annotated[
        Messages | None,
        Meta(description="Conversation to render and tokenize, instead of `prompt`."),
    ] = None
    content: Annotated[
        str | None,
        Meta(description="llama-server's: text to tokenize, without the tokenizer's own tokens."),
    ] = None
    add_special_tokens: Annotated[
        bool | None,
        Meta(
            description="Let the tokenizer add its own tokens. "
            "Default: true for a prompt, false for messages and content."
        ),
    ] = None
    add_special: Annotated[
        bool | None, Meta(description="llama-server's name of `add_special_tokens`.")
    ] = None
    add_generation_prompt: AddGenerationPrompt = None
    continue_final_message: ContinueFinalMessage = False
    chat_template: OwnTemplate = None
    chat_template_kwargs: TemplateVariables = msgspec.field(default_factory=dict)
    tools: Tools = []
    return_token_strs: Annotated[bool, Meta(description="Also return the tokens as strings.")] = (
        False
    )

    @property
    def opens_turn(self) -> bool:
        """Whether the template is to open the assistant's turn."""
        return opens_turn(self.add_generation_prompt, self.continue_final_message)

    @property
    def adds_special_tokens(self) -> bool:
        """Whether the tokenizer is to add its own tokens."""
        given = self.add_special if self.add_special_tokens is None else self.add_special_tokens
        return self.prompt is not None if given is None else given


def check_tokenize(request: TokenizeRequest) -> None:
    """Rules over several fields; raises RequestError."""
    given = [name for name in _TEXTS if getattr(request, name) is not None]
    if not given:
        raise RequestError(
            "prompt: this field is required, or messages in its place (or content, as "
            "llama-server has it)",
            param="prompt",
            code=MISSING_FIELD,
        )
    if len(given) > 1:
        raise RequestError(
            f"{' and '.join(given)}: one text is tokenized at a time; give one of them",
            param=given[1],
            code=INVALID_VALUE,
        )
    flags = (request.add_special_tokens, request.add_special)
    if None not in flags and flags[0] != flags[1]:
        raise RequestError(
            f"add_special: {_json(flags[1])} contradicts add_special_tokens, {_json(flags[0])}, "
            "which is the same field; give one of them",
            param="add_special",
            code=INVALID_VALUE,
        )
    check_turn(request.add_generation_prompt, request.continue_final_message)
    check_tools(request.tools)
    if request.messages is not None:
        check_messages(request.messages)


def _json(flag: bool | None) -> str:
    return "true" if flag else "false"


class TokenizeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a text."""

    count: Annotated[int, Meta(description="The length of `tokens`.")]
    max_model_len: Annotated[int, Meta(description="The server's limit for prompt and output.")]
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /detokenize."""

    model: ServedName = None
    tokens: Annotated[list[TokenId], Meta(description="Token ids; special ones are written out.")]


class DetokenizeReply(msgspec.Struct, frozen=True):
    """The text of the tokens."""

    prompt: str
    content: Annotated[str, Meta(description="The same, under llama-server's name.")]
