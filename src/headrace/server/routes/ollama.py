"""Ollama's API over the one model that is served: chats, prompts, and what there is.

What keeps models (pull, create, copy, delete, push) and what makes vectors is refused with what
does it here.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.responses import Response

from headrace.conversation.reading import AnswerReading
from headrace.protocol.neutral.call import ChatCall
from headrace.server.api_error import ApiError
from headrace.server.call import Call, Handler
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.read_body import ReadBody
from headrace.server.model.served import ServedModel
from headrace.server.prompts.fill_in import fill_in_marks
from headrace.server.prompts.ollama_prompt import FIELDS, prompt_of, with_turn
from headrace.server.replies.reply import Head
from headrace.server.routes.dialect_chat import answer_read, read_call
from headrace.server.state import ServerState

if TYPE_CHECKING:
    from headrace.protocol.dialects.ollama import OllamaClient
    from headrace.protocol.dialects.ollama.models import ModelFacts

_LATEST = ":latest"
"""What Ollama's clients add to a name that has no tag."""


async def ollama_chat(call: Call) -> Response:
    """POST /api/chat: the next message, as lines of JSON unless `stream` is false."""
    from headrace.protocol.dialects.ollama import OllamaClient

    return await _answered(call, OllamaClient(_now(call.state)))


async def ollama_generate(call: Call) -> Response:
    """POST /api/generate: the answer to one prompt, in the same form."""
    from headrace.protocol.dialects.ollama.generate import OllamaGenerateClient

    side = OllamaGenerateClient(_now(call.state))
    return await _answered(call, side, prompts=True)


async def ollama_tags(call: Call) -> Response:
    """GET /api/tags: the served names."""
    from headrace.protocol.dialects.ollama import models

    model = call.state.serving().model
    return _json(models.write_tags(model.names, _time(model.created_s), _facts(model)))


async def ollama_ps(call: Call) -> Response:
    """GET /api/ps: the same, as all of them are loaded."""
    from headrace.protocol.dialects.ollama import models

    model = call.state.serving().model
    return _json(models.write_ps(model.names, _facts(model)))


async def ollama_show(call: Call) -> Response:
    """POST /api/show: what a model can do."""
    from headrace.protocol.dialects.ollama import models

    model = call.state.serving().model
    name = await call.read(models.read_show)
    _check_name(model, name)
    return _json(
        models.write_show(
            name,
            capabilities=_capabilities(model),
            context_length=model.limits.context_tokens,
            modified_at=_time(model.created_s),
            facts=_facts(model),
        )
    )


async def ollama_version(call: Call) -> Response:
    """GET /api/version: of the Ollama whose API this is."""
    from headrace.protocol.dialects.ollama import models

    return _json(models.write_version(models.VERSION))


def refused(remedy: str) -> Handler:
    """What keeps models or makes vectors; remedy: what does it here, if anything."""

    async def refuse(call: Call) -> Response:
        path = call.http.scope["path"]
        raise ApiError(400, f"{path} is not supported here: {remedy}", code="unsupported")

    return refuse


_ONE_MODEL = "this server has the one model that it was started with; "
NOT_HERE: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/api/pull", refused(_ONE_MODEL + "`headrace pull NAME` downloads others")),
    ("POST", "/api/push", refused(_ONE_MODEL + "it uploads none")),
    (
        "POST",
        "/api/create",
        refused(_ONE_MODEL + "`headrace serve` takes a system prompt and settings as flags"),
    ),
    (
        "POST",
        "/api/copy",
        refused(_ONE_MODEL + "`headrace serve --served-model-name` gives it further names"),
    ),
    ("DELETE", "/api/delete", refused(_ONE_MODEL + "`headrace rm NAME` deletes others")),
    ("POST", "/api/embed", refused("the model writes text, and no vectors")),
    ("POST", "/api/embeddings", refused("the model writes text, and no vectors")),
)


class _OnlyLoadError(Exception):
    """A call that wants the model loaded, and no answer."""

    def __init__(self, call: ChatCall) -> None:
        super().__init__("no answer is wanted")
        self.call = call


async def _answered(call: Call, side: OllamaClient, *, prompts: bool = False) -> Response:
    """prompts: whether calls are of /api/generate."""
    from headrace.protocol.dialects.ollama import load
    from headrace.server.dialects.ollama_options import with_options
    from headrace.server.dialects.ollama_reply import OllamaReply

    serving = call.state.generating(call.key)
    model = serving.model
    context_tokens = model.limits.context_tokens

    def adapt(chat: ChatCall) -> ChatCall:
        _check_name(model, chat.model)
        if prompts:
            chat = with_turn(chat)
        if load.load_reason(chat) is not None:
            raise _OnlyLoadError(chat)
        return with_options(chat, context_tokens)

    try:
        read = await read_call(
            call, side, adapt=adapt, taken=FIELDS if prompts else frozenset(), continues=not prompts
        )
    except _OnlyLoadError as only:
        return _json(side.write_reply(load.load_reply(only.call), only.call))

    def reply(
        read: ReadBody, head: Head, prompt_ids: list[int], reading: AnswerReading | None
    ) -> NeutralReply:
        return OllamaReply(
            side,
            read.call,
            replace(head, model=read.call.model),
            prompt_ids,
            reading,
            model.tokenizer,
            new_id=call.state.new_id,
            with_context=prompts and not read.call.extra.get("raw"),
        )

    make_prompt = prompt_of(read.call) if prompts else None
    return await answer_read(
        call, serving, side, read, reply, prefix="ollama-", make_prompt=make_prompt
    )


def _check_name(model: ServedModel, name: str) -> None:
    from headrace.protocol.dialects.ollama import models

    if name not in model.names and name.removesuffix(_LATEST) not in model.names:
        raise models.no_model(name)


def _capabilities(model: ServedModel) -> list[str]:
    """In Ollama's words."""
    found = ["completion"]
    if model.answer_format.calls is not None:
        found.append("tools")
    if model.answer_format.reasoning is not None:
        found.append("thinking")
    if model.tokenizer.has_text and fill_in_marks(model.tokenizer) is not None:
        found.append("insert")
    return found


def _facts(model: ServedModel) -> ModelFacts:
    from headrace.protocol.dialects.ollama.models import ModelFacts

    info = model.engine.info
    return ModelFacts(
        size_bytes=info.weight_bytes,
        family=info.model_type,
        quantization=_mix_name(model.file_type) or info.weight_codec,
        context_tokens=model.limits.context_tokens,
        file_format=model.file_format,
        num_parameters=model.num_parameters,
    )


def _mix_name(file_type: object) -> str:
    """The name of a mix of codecs ("Q4_K_M") by its number in a GGUF file; "" for one that is not
    known."""
    from headrace.weights.gguf.values import FILE_TYPES
    from headrace.weights.quantize.mixes import MIXES

    names = {number: codec for codec, number in FILE_TYPES.items()}
    names |= {mix.file_type: name for name, mix in MIXES.items()}
    return names.get(file_type, "") if isinstance(file_type, int) else ""


def _now(state: ServerState) -> str:
    at = datetime.fromtimestamp(state.wall_clock(), UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(unix_s: int) -> str:
    from headrace.protocol.dialects.ollama.timestamp import rfc3339

    return rfc3339(unix_s)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
