"""The first look at an endpoint: whether somebody answers, takes the key, and has which models."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.bench.client.answer import json_value
from headrace.bench.client.endpoints import (
    Endpoint,
    EndpointKind,
    HttpRequest,
    build_request,
    get_request,
    split_url,
    without_secrets,
)
from headrace.bench.client.failure_text import one_line, status_message
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.prompt import Prompt
from headrace.bench.client.raw import RawReply
from headrace.bench.client.refused_field import refused_field
from headrace.bench.load.failures import KEY_VARIABLES
from headrace.errors import HeadraceError, shown

_TIMEOUT_S = 10.0
_SHOWN_MODELS = 10
# Of `owned_by`: the server's, and the mock's.
_OURS = ("headrace", "headrace-mock")
# Of a request with a model that a server does not have: OpenAI's 404, others' 400 and 422.
_REFUSALS = frozenset({400, 401, 403, 404, 405, 422})
_TRIAL_TOKENS = 16


class UnreachableError(HeadraceError):
    """An endpoint that does not answer, or not to this key: no request could succeed."""


class Found(NamedTuple):
    """The models that an endpoint lists."""

    models: tuple[str, ...]
    """Names that the endpoint lists."""
    why_none: str = ""
    """Where it lists none."""
    is_headrace: bool = False
    """Whether the list says that the server is ours, or its mock, which knows what only ours
    does."""

    def tells_metrics(self, kind: EndpointKind) -> bool:
        """Whether a request of this kind may ask for its own times."""
        return self.is_headrace and kind in ("openai-chat", "openai-completions")


async def look(endpoint: Endpoint) -> Found:
    """Ask for the models; their endpoint may be absent. Raises UnreachableError."""
    request_path = _path(endpoint)
    raw = await _sent(get_request(endpoint, request_path))
    at = f"{without_secrets(endpoint.base_url)} cannot be measured"
    if raw.failure is not None:
        message = one_line(raw.failure.message, endpoint.secrets)
        raise UnreachableError(f"{at}: {message} ({raw.failure.kind}, at {request_path})")
    if raw.status in (401, 403):
        keys = f"set {' or '.join(KEY_VARIABLES)}"
        message = one_line(status_message(raw), endpoint.secrets)
        raise UnreachableError(f"{at}: {message} (http, at {request_path}); {keys}")
    if raw.status != 200:
        return Found((), one_line(status_message(raw), endpoint.secrets))
    try:
        told = json_value(raw.body)
    except (ValueError, RecursionError):
        kind = raw.headers.get("content-type", "no content type")
        kind = one_line(kind, endpoint.secrets)
        return Found((), f"{_path(endpoint)} is {kind}, not JSON: is this the URL of an API?")
    models = _names(told)
    why_none = "" if models else f"{_path(endpoint)} lists no model"
    return Found(models, why_none, is_headrace=_is_headrace(told))


def choose_model(found: Found, asked: str | None, flag: str = "--model") -> str:
    """The name that was asked for by `flag`, or the only one there is. Raises UnreachableError."""
    if asked:
        return asked
    if len(found.models) == 1:
        return found.models[0]
    if found.models:
        raise UnreachableError(
            f"{len(found.models)} models are served; give one as {flag}: {_listing(found)}"
        )
    raise UnreachableError(f"the name of the model is not known: {found.why_none}; give {flag}")


async def check_model(endpoint: Endpoint, found: Found, flag: str = "--model") -> None:
    """Try the endpoint's model, as `flag` names it, with one short request where the list does not
    have it.

    The list may be incomplete, as aliases, adapters and suffixes of routers need not be in it.
    Raises UnreachableError with the server's words and the models that it lists.
    """
    model = endpoint.model
    if not found.models or model in found.models or f"{model}:latest" in found.models:
        return
    text = "Hello"
    prompt = (
        Prompt(inputs=(text,))
        if endpoint.kind == "openai-embeddings"
        else Prompt(text=text, max_tokens=_TRIAL_TOKENS, stream=False)
    )
    raw = await _sent(build_request(endpoint, prompt))
    if raw.failure is not None or raw.status not in _REFUSALS:
        return
    message = one_line(status_message(raw), endpoint.secrets)
    field = refused_field(raw.status, message)
    remedy = (
        f"the server lists {_listing(found)}" if field is None else f"measure it with {field.flag}"
    )
    raise UnreachableError(f"{flag} {shown(model)} cannot be measured: {message}; {remedy}")


async def _sent(request: HttpRequest) -> RawReply:
    limits = ClientLimits(
        max_connections=1,
        connect_timeout_s=_TIMEOUT_S,
        request_timeout_s=_TIMEOUT_S,
        max_reply_bytes=16 * 2**20,
    )
    client = LoadClient(request.origin, limits)
    try:
        return await client.send(request)
    finally:
        await client.close()


def _listing(found: Found) -> str:
    more = len(found.models) - _SHOWN_MODELS
    listed = ", ".join(found.models[:_SHOWN_MODELS])
    return f"{listed} and {more:,} more" if more > 0 else listed


def _path(endpoint: Endpoint) -> str:
    base = split_url(endpoint.base_url).path.rstrip("/")
    if endpoint.kind == "ollama":
        return base.removesuffix("/api") + "/api/tags"
    return base.removesuffix("/v1") + "/v1/models"


def _listed(told: Any) -> list[dict[str, Any]]:
    listed = told.get("data", told.get("models")) if isinstance(told, dict) else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _is_headrace(told: Any) -> bool:
    """All of them: a gateway that lists others' models, too, may refuse what ours alone knows."""
    owners = [one.get("owned_by") for one in _listed(told)]
    return bool(owners) and all(owner in _OURS for owner in owners)


def _names(told: Any) -> tuple[str, ...]:
    models = _listed(told)
    # A model under several names has one root, in vLLM's list and in ours: the first will do.
    roots = {one["root"] for one in models if isinstance(one.get("root"), str)}
    names = []
    for one in models:
        root = one.get("root")
        if isinstance(root, str) and root not in roots:
            continue
        roots.discard(root)
        names.append(one.get("id", one.get("name")))
    return tuple(name for name in names if isinstance(name, str) and name == shown(name)[1:-1])
