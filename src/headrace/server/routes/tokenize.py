"""POST /tokenize and /detokenize."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.responses import Response

from headrace.engine.limits import check_token_ids
from headrace.errors import RequestError
from headrace.protocol.openai.fields import DETOKENIZE, TOKENIZE
from headrace.protocol.openai.tokenize import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
)
from headrace.server.call import Call
from headrace.server.model.served import ServedModel
from headrace.server.prompts.prompt import TEXT_TOO_LONG, Conversation, render, tokenize
from headrace.server.replies.long_reply import (
    PART_ITEMS,
    LongReply,
    filled,
    in_parts,
    list_parts,
    text_parts,
)
from headrace.server.replies.reply import json_reply
from headrace.text import Detokenizer
from headrace.text.no_tokenizer import no_tokenizer

# Tokens may be some hundred bytes long.
DETOKENIZED_ITEMS = 256


async def tokenize_text(call: Call) -> Response:
    """Token ids of a text or of a rendered conversation, exactly as generation would take them."""
    model = call.state.serving().model
    request = await call.parse(TOKENIZE)
    model.check_name(request.model)
    ids = await call.side_work(lambda: _ids(request, model))
    names = model.tokenizer.token_text

    def reply(tokens: list[int]) -> TokenizeReply:
        return TokenizeReply(
            count=len(ids),
            max_model_len=model.limits.context_tokens,
            tokens=tokens,
            token_strs=list(map(names, tokens)) if request.return_token_strs else None,
        )

    if len(ids) <= PART_ITEMS:
        return json_reply(reply(ids))
    fields = {"tokens": list_parts(in_parts(ids))}
    if request.return_token_strs:
        fields["token_strs"] = list_parts(list(map(names, part)) for part in in_parts(ids))
    return LongReply(filled(reply([]), fields))


def _ids(request: TokenizeRequest, model: ServedModel) -> list[int]:
    special = request.adds_special_tokens
    if request.messages is None:
        param, text = "prompt", request.prompt
        if text is None:
            param, text = "content", request.content
        return tokenize(model, text or "", add_special_tokens=special, param=param, must_fit=False)
    conversation = Conversation(
        request.messages,
        opens_turn=request.opens_turn,
        continues=request.continue_final_message,
        variables=request.chat_template_kwargs,
        template=request.chat_template,
        tools=request.tools,
    )
    return render(model, conversation, add_special_tokens=special, must_fit=False).token_ids


async def detokenize(call: Call) -> Response:
    """The text of token ids, special tokens written out."""
    model = call.state.serving().model
    request = await call.parse(DETOKENIZE)
    model.check_name(request.model)
    await call.side_work(lambda: _check_ids(request, model))
    if len(request.tokens) <= PART_ITEMS:
        text = "".join(_texts(request.tokens, model))
        return json_reply(DetokenizeReply(text, text))
    texts = {
        name: text_parts(_texts(request.tokens, model))
        for name in DetokenizeReply.__struct_fields__
    }
    return LongReply(filled(DetokenizeReply("", ""), texts))


def _check_ids(request: DetokenizeRequest, model: ServedModel) -> None:
    count, most = len(request.tokens), model.max_text_tokens
    if count > most:
        raise RequestError(
            f"tokens: has {count} ids; at most {most} are detokenized here. Send them in parts.",
            param="tokens",
            code=TEXT_TOO_LONG,
        )
    check_token_ids(request.tokens, model.limits, "tokens")
    if not model.tokenizer.has_text:
        raise no_tokenizer("ids have no text", "tokens")


def _texts(ids: Sequence[int], model: ServedModel) -> Iterator[str]:
    detokenizer = Detokenizer(model.tokenizer, skip_special_tokens=False)
    for part in in_parts(ids, DETOKENIZED_ITEMS):
        yield detokenizer.feed(part)
    yield detokenizer.flush()
