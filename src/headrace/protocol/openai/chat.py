"""Chat completions: request, reply, and the chunks of a streamed reply.

A stream is, for each choice: a delta {role, content: ""}, deltas with content, and one chunk with
`finish_reason` and an empty delta; then, if asked for, one chunk with `choices: []` and the usage.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.errors import RequestError, shown
from headrace.protocol.openai.choice import ChoiceMetrics, PromptLogprobs, PromptProgress
from headrace.protocol.openai.rules import check_generation, check_min_tokens
from headrace.protocol.openai.sampling import AtLeastOne, SamplingFields
from headrace.protocol.openai.template import (
    AddGenerationPrompt,
    ContinueFinalMessage,
    OwnTemplate,
    TemplateVariables,
    check_turn,
    opens_turn,
)
from headrace.protocol.openai.tools import (
    ReplyToolCall,
    ToolChoice,
    Tools,
    check_tools,
    tool_choice_of,
)
from headrace.protocol.openai.usage import Usage

ROLES = ("system", "developer", "user", "assistant", "tool")

# Message keys a chat template may read; others are named in X-Ignored-Params.
MESSAGE_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning"}
)

ThinkingTokens = Annotated[int, Meta(ge=0, le=2**31 - 1)]

REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message's content. Only `type: "text"` is supported."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the conversation. Null and absent are the same."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


Messages = Annotated[list[Message], Meta(min_length=1)]


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`reasoning`, as OpenRouter has it."""

    effort: str | None = None
    max_tokens: ThinkingTokens | None = None
    exclude: bool | None = None
    enabled: bool | None = None


class ChatCompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Annotated[
        Messages,
        Meta(
            description="The conversation: role (" + ", ".join(ROLES) + ") and content, "
            "a string or a list of text parts.",
        ),
    ]
    max_tokens: Annotated[AtLeastOne | None, Meta(description="Most tokens to generate.")] = None
    max_completion_tokens: Annotated[
        AtLeastOne | None, Meta(description="Overrides max_tokens. Default: to the context's end.")
    ] = None
    logprobs: Annotated[
        bool, Meta(description="Return the log probability of each generated token.")
    ] = False
    top_logprobs: Annotated[
        int,
        Meta(
            ge=0,
            description="Also return this many of the likeliest tokens at each position "
            "(at most `--max-logprobs`).",
        ),
    ] = 0
    add_generation_prompt: AddGenerationPrompt = None
    continue_final_message: ContinueFinalMessage = False
    chat_template: OwnTemplate = None
    chat_template_kwargs: TemplateVariables = msgspec.field(default_factory=dict)
    add_special_tokens: Annotated[
        bool,
        Meta(description="Let the tokenizer add its own (BOS) tokens to the rendered template."),
    ] = False
    reasoning_effort: Annotated[
        str | None,
        Meta(
            description="Passed to the chat template, `none` with `enable_thinking: false`; no "
            "effect "
            "if the template does not read them."
        ),
    ] = None
    reasoning: Annotated[
        ReasoningOptions | None,
        Meta(
            description="`effort` and `max_tokens` are other names of reasoning_effort and "
            "thinking_token_budget; `enabled: false` is the effort `none`; `exclude: true` omits "
            "the reasoning from the reply."
        ),
    ] = None
    include_reasoning: Annotated[
        bool, Meta(description="Return the model's reasoning, as `reasoning`.")
    ] = True
    tools: Tools = msgspec.field(default_factory=list)
    tool_choice: Annotated[
        Any,
        Meta(
            description="`none`, `auto`, `required`, `{type: function, function: {name}}` or "
            "`{type: allowed_tools, allowed_tools: {mode, tools}}`. Calls that are required cannot "
            "be malformed: the answer is held to their grammar."
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool, Meta(description="Whether an answer may have several calls.")
    ] = True

    @property
    def wanted_tokens(self) -> int | None:
        """The most new tokens requested; None for as many as fit."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def tokens_param(self) -> str:
        """The field that sets the limit."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def opens_turn(self) -> bool:
        """Whether the template is to open the assistant's turn."""
        return opens_turn(self.add_generation_prompt, self.continue_final_message)

    @property
    def choice_of_tools(self) -> ToolChoice:
        """`tool_choice` as a value. Raises RequestError for one that is not possible."""
        return tool_choice_of(self.tool_choice, self.tools)

    @property
    def effort(self) -> str | None:
        """How much the model is to reason; None where nothing says so."""
        if self.reasoning_effort is not None or self.reasoning is None:
            return self.reasoning_effort
        return "none" if self.reasoning.enabled is False else self.reasoning.effort

    @property
    def thinking_tokens(self) -> int | None:
        """The most tokens of reasoning; None where nothing says so."""
        if self.thinking_token_budget is not None or self.reasoning is None:
            return super().thinking_tokens
        return self.reasoning.max_tokens

    @property
    def shows_reasoning(self) -> bool:
        """Whether the reply has the reasoning."""
        excluded = self.reasoning is not None and self.reasoning.exclude
        return self.include_reasoning and not excluded


def check_messages(messages: list[Message]) -> None:
    """Raise RequestError for a role or a content part that is not supported, naming it."""
    for index, message in enumerate(messages):
        if message.role not in ROLES:
            raise RequestError(
                f"messages[{index}].role: {shown(message.role)} is not supported; "
                f"accepted: {', '.join(ROLES)}",
                param=f"messages[{index}].role",
                code="unsupported",
            )
        if isinstance(message.content, list):
            for position, part in enumerate(message.content):
                _check_part(part, f"messages[{index}].content[{position}]")


def check_chat(request: ChatCompletionRequest) -> None:
    """Rules over several fields; raises RequestError."""
    check_messages(request.messages)
    check_generation(request)
    check_min_tokens(request.min_tokens, request.wanted_tokens, request.tokens_param)
    check_turn(request.add_generation_prompt, request.continue_final_message)
    if request.top_logprobs and not request.logprobs:
        raise RequestError(
            f"top_logprobs: {request.top_logprobs} needs `logprobs: true`", param="top_logprobs"
        )
    check_tools(request.tools)
    tool_choice_of(request.tool_choice, request.tools)
    named = "reasoning.effort" if request.reasoning_effort is None else "reasoning_effort"
    check_effort(request.effort, named)


def check_effort(effort: str | None, param: str) -> None:
    """Raise RequestError for an effort that is not one of REASONING_EFFORTS; None names none."""
    if effort is not None and effort not in REASONING_EFFORTS:
        raise RequestError(
            f"{param}: {shown(effort)} is not supported; accepted: {', '.join(REASONING_EFFORTS)}",
            param=param,
            code="unsupported",
        )


def _check_part(part: ContentPart, path: str) -> None:
    if part.type != "text":
        raise RequestError(
            f"{path}.type: {shown(part.type)} is not supported; accepted: 'text'",
            param=f"{path}.type",
            code="unsupported",
        )
    if part.text is None:
        raise RequestError(f"{path}.text: a text part needs a string", param=f"{path}.text")


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token and its log probability; `bytes` are its own, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class ChatTokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A generated token and the likeliest tokens at its position."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[TopLogprob] = []


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log probabilities of a choice's tokens, in order."""

    content: list[ChatTokenLogprob] | None = None
    refusal: None = None


class ReplyMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The model's message."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    reasoning: str | UnsetType = UNSET
    """What the model thought before it answered, where it did."""
    reasoning_content: str | UnsetType = UNSET
    """The same, under the name that other clients read."""
    tool_calls: list[ReplyToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. stop_reason (vLLM): the stop string or stop token id that ended it, else null."""

    index: int = 0
    message: ReplyMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType = UNSET
    metrics: ChoiceMetrics | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The whole reply. prompt_logprobs and prompt_token_ids are as in vLLM, if requested."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The new content of a chunk."""

    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ReplyToolCall] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice's part of a chunk."""

    index: int = 0
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET
    metrics: ChoiceMetrics | UnsetType = UNSET


class ChatCompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream. `usage` is absent, null, or the counts: in the last event, or in all.

    prompt_*: in the first event, or before it (the progress), if requested.
    """

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
