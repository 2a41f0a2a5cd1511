"""POST /tokenize and /detokenize."""

from __future__ import annotations

from starlette.responses import Response

from headrace.engine.limits import check_token_ids
from headrace.protocol.openai.fields import DETOKENIZE, TOKENIZE
from headrace.protocol.openai.tokenize import DetokenizeReply, TokenizeReply, TokenizeRequest
from headrace.server.call import Call
from headrace.server.prompt import render, tokenize
from headrace.server.reply import json_reply
from headrace.server.served import ServedModel


async def tokenize_text(call: Call) -> Response:
    """Token ids of a text or of a rendered conversation, exactly as generation would take them."""
    model = call.state.serving().model
    request = await call.parse(TOKENIZE)
    model.check_name(request.model)
    return json_reply(await call.side_work(lambda: _tokenized(request, model)))


def _tokenized(request: TokenizeRequest, model: ServedModel) -> TokenizeReply:
    special = request.add_special_tokens
    if request.messages is None:
        text = request.prompt or ""
        ids = tokenize(model, text, add_special_tokens=True if special is None else special)
    else:
        ids = render(
            model,
            request.messages,
            opens_turn=request.opens_turn,
            continues=request.continue_final_message,
            add_special_tokens=bool(special),
            variables=request.chat_template_kwargs,
            template=request.chat_template,
        )
    names = model.tokenizer.token_text
    return TokenizeReply(
        count=len(ids),
        max_model_len=model.limits.context_tokens,
        tokens=ids,
        token_strs=[names(token_id) for token_id in ids] if request.return_token_strs else None,
    )


async def detokenize(call: Call) -> Response:
    """The text of token ids, special tokens written out."""
    model = call.state.serving().model
    request = await call.parse(DETOKENIZE)
    model.check_name(request.model)
    check_token_ids(request.tokens, model.limits, "tokens")
    decode = model.tokenizer.decode
    text = await call.side_work(lambda: decode(request.tokens, skip_special_tokens=False))
    return json_reply(DetokenizeReply(text))
