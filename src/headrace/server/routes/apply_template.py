"""POST /apply-template: the prompt that a conversation becomes, as text."""

from __future__ import annotations

from starlette.responses import Response

from headrace.protocol.openai.apply_template import ApplyTemplateReply
from headrace.protocol.openai.fields import APPLY_TEMPLATE
from headrace.server.call import Call
from headrace.server.prompts.prompt import Conversation, render_text
from headrace.server.replies.reply import json_reply


async def apply_template(call: Call) -> Response:
    """The text that a chat request with these messages would be tokenized from."""
    model = call.state.serving().model
    request = await call.parse(APPLY_TEMPLATE)
    model.check_name(request.model)
    text = await call.side_work(
        lambda: render_text(
            model,
            Conversation(
                request.messages,
                opens_turn=request.opens_turn,
                continues=request.continue_final_message,
                variables=request.chat_template_kwargs,
                template=request.chat_template,
                tools=request.tools,
            ),
        )
    )
    return json_reply(ApplyTemplateReply(text))
