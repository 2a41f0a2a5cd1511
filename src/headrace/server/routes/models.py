"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from starlette.responses import Response

from headrace.engine.sampling.defaults import in_full
from headrace.protocol.openai.models import Model, ModelList
from headrace.server.call import Call
from headrace.server.model.served import ServedModel
from headrace.server.replies.reply import json_reply


async def list_models(call: Call) -> Response:
    """Every served name."""
    model = call.state.serving().model
    return json_reply(ModelList(data=[_entry(model, name) for name in model.names]))


async def one_model(call: Call) -> Response:
    """One served name; 404 for others."""
    model = call.state.serving().model
    name = call.http.path_params["model"]
    model.check_name(name)
    return json_reply(_entry(model, name))


def _entry(model: ServedModel, name: str) -> Model:
    return Model(
        id=name,
        created=model.created_s,
        root=model.root or name,
        parent=None,
        max_model_len=model.limits.context_tokens,
        default_sampling_params=in_full(model.sampling_defaults),
    )
