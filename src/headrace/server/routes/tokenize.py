"""POST /tokenize and /detokenize."""

from __future__ import annotations

from starlette.responses import Response

from headrace.protocol.openai.fields import DETOKENIZE, TOKENIZE
from headrace.protocol.openai.tokenize import DetokenizeReply, TokenizeReply
from headrace.server.call import Call
from headrace.server.params import check_token_ids
from headrace.server.prompt import off_loop, render, tokenize
from headrace.server.reply import json_reply


async def tokenize_text(call: Call) -> Response:
    """Token ids of a text or of a rendered conversation, exactly as generation would take them."""
    request = await call.parse(TOKENIZE)
    model = call.state.serving().model
    model.check_name(request.model)
    special = request.add_special_tokens
    if request.messages is None:
        ids = await tokenize(
            call.state.workers,
            model,
            request.prompt or "",
            add_special_tokens=True if special is None else special,
        )
    else:
        ids = await render(
            call.state.workers,
            model,
            request.messages,
            opens_turn=request.opens_turn,
            continues=request.continue_final_message,
            add_special_tokens=bool(special),
            variables=request.chat_template_kwargs,
        )
    names = [model.tokenizer.token_text(token_id) for token_id in ids]
    return json_reply(
        TokenizeReply(
            count=len(ids),
            max_model_len=model.context_tokens,
            tokens=ids,
            token_strs=names if request.return_token_strs else None,
        )
    )


async def detokenize(call: Call) -> Response:
    """The text of token ids, special tokens written out."""
    request = await call.parse(DETOKENIZE)
    model = call.state.serving().model
    model.check_name(request.model)
    check_token_ids(request.tokens, "tokens", model.engine.info.vocab_size)
    text = await off_loop(
        call.state.workers,
        len(request.tokens),
        lambda: model.tokenizer.decode(request.tokens, skip_special_tokens=False),
    )
    return json_reply(DetokenizeReply(text))
