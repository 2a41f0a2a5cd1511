"""/apply-template, in llama-server's shape: the text that a template makes of a conversation."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.protocol.openai.chat import Messages, check_messages
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


class ApplyTemplateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """POST /apply-template."""

    model: ServedName = None
    messages: Annotated[Messages, Meta(description="Conversation to render, as in chat.")]
    add_generation_prompt: AddGenerationPrompt = None
    continue_final_message: ContinueFinalMessage = False
    chat_template: OwnTemplate = None
    chat_template_kwargs: TemplateVariables = msgspec.field(default_factory=dict)
    tools: Tools = []

    @property
    def opens_turn(self) -> bool:
        """Whether the template is to open the assistant's turn."""
        return opens_turn(self.add_generation_prompt, self.continue_final_message)


def check_apply_template(request: ApplyTemplateRequest) -> None:
    """Rules over several fields; raises RequestError."""
    check_turn(request.add_generation_prompt, request.continue_final_message)
    check_tools(request.tools)
    check_messages(request.messages)


class ApplyTemplateReply(msgspec.Struct, frozen=True):
    """The rendered conversation."""

    prompt: Annotated[
        str,
        Meta(description="The text that is tokenized, with the special tokens of the template."),
    ]
