"""Fields of every request that is rendered by a chat template."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from headrace.errors import RequestError

ServedName = Annotated[
    str | None, Meta(description="A served name; may be omitted, as one model is served.")
]
AddGenerationPrompt = Annotated[
    bool | None,
    Meta(description="Open the assistant's turn. Default: unless continue_final_message."),
]
ContinueFinalMessage = Annotated[
    bool, Meta(description="Leave the last message open, so that the model goes on with it.")
]
OwnTemplate = Annotated[
    str | None,
    Meta(
        description="Template in place of the model's own. "
        "Refused without `--trust-request-chat-template`."
    ),
]
TemplateVariables = Annotated[
    dict[str, Any], Meta(description="Further variables for the chat template.")
]


def opens_turn(add_generation_prompt: bool | None, continue_final_message: bool) -> bool:
    """Whether the template is to open the assistant's turn."""
    return not continue_final_message if add_generation_prompt is None else add_generation_prompt


def check_turn(add_generation_prompt: bool | None, continue_final_message: bool) -> None:
    """Raise RequestError when a turn is to be opened and continued at once."""
    if add_generation_prompt and continue_final_message:
        raise RequestError(
            "add_generation_prompt and continue_final_message exclude each other; "
            "set one of them to false",
            param="continue_final_message",
        )
