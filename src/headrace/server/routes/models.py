"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from starlette.responses import Response

from headrace.engine.sampling.defaults import in_full
from headrace.protocol.openai.models import Model, ModelList
from headrace.server.call import Call
from headrace.server.model.served import ServedModel
from headrace.server.replies.reply import json_reply


async def list_models(call: Call) -> Response:
    """Every served name, in Anthropic's form for its clients."""
    model = call.state.serving().model
    if _is_anthropic(call):
        from headrace.protocol.dialects.anthropic.models import write_models

        return _json(write_models(model.names, model.created_s))
    return json_reply(ModelList(data=[_entry(model, name) for name in model.names]))


async def one_model(call: Call) -> Response:
    """One served name; 404 for others."""
    model = call.state.serving().model
    name = call.http.path_params["model"]
    model.check_name(name)
    if _is_anthropic(call):
        from headrace.protocol.dialects.anthropic.models import write_model

        return _json(write_model(name, model.created_s))
    return json_reply(_entry(model, name))


def _is_anthropic(call: Call) -> bool:
    """Whether the client is one of Anthropic's, whose list has the same path as OpenAI's: all of
    them send the version of its API."""
    return "anthropic-version" in call.http.headers


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _entry(model: ServedModel, name: str) -> Model:
    return Model(
        id=name,
        created=model.created_s,
        root=model.root or name,
        parent=None,
        max_model_len=model.limits.context_tokens,
        default_sampling_params=in_full(model.sampling_defaults),
    )
