"""Routing preferences in a client's request, in OpenRouter's format.

The `provider` object, the `models` list, suffixes of a model's name (`:nitro`, `:floor`, `:free`)
and the older `route`: "fallback" tries models and their targets in order, "load-balance" draws the
targets by weight, "sort" sorts the targets of all models together, as `sort.partition` "none" does.
Source: openrouter.ai/docs, "Provider routing" and "Model routing".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.config.field_error import field_error
from headrace.errors import RequestError, shown
from headrace.gateway.routing.model_name import check_name

Sort = Literal["price", "throughput", "latency"]
RouteWord = Literal["fallback", "load-balance", "sort"]
SUFFIXES: dict[str, Sort] = {"nitro": "throughput", "floor": "price"}
FREE = "free"

_MOST_MODELS = 16
# Each is compared with each target; there are some 60 providers.
_MOST_NAMES = 256
_Names = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=_MOST_NAMES)
]
_NotNegative = Annotated[float, Meta(ge=0)]


class MaxPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits in US dollars per million tokens; `request` is per request."""

    prompt: _NotNegative | None = None
    completion: _NotNegative | None = None
    request: _NotNegative | None = None


class _SortObject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Sort
    partition: Literal["model", "none"] | None = None
    """"model": models are tried in turn; "none": the targets of all are sorted together."""


class Preferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `provider` object. Names are of providers or of targets ("openai/gpt-5")."""

    order: _Names = ()
    only: _Names = ()
    ignore: _Names = ()
    allow_fallbacks: bool = True
    require_parameters: bool = False
    data_collection: Literal["allow", "deny"] = "allow"
    zdr: bool = False
    quantizations: _Names = ()
    """Quantizations of the weights that are allowed."""
    sort: Sort | _SortObject | None = None
    max_price: MaxPrice | None = None
    preferred_min_throughput: _NotNegative | dict[str, _NotNegative] | None = None
    preferred_max_latency: _NotNegative | dict[str, _NotNegative] | None = None
    enforce_distillable_text: bool | None = None
    """Refused if true: the gateway does not know what may be distilled."""

    @property
    def sort_by(self) -> Sort | None:
        """The sort key, in whichever form it was written."""
        return self.sort.by if isinstance(self.sort, _SortObject) else self.sort

    @property
    def sorts_all(self) -> bool:
        """Whether the targets of all models are sorted together."""
        return isinstance(self.sort, _SortObject) and self.sort.partition == "none"


NONE = Preferences()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The models and preferences of a request."""

    models: tuple[str, ...]
    """In the order in which they are tried."""
    preferences: Preferences = NONE
    sort: Sort | None = None
    """The sort key of a suffix."""
    free: bool = False
    """Whether only free targets are allowed."""
    route: RouteWord | None = None
    """The older `route`."""

    @property
    def sort_by(self) -> Sort | None:
        """The sort key of `provider` or of a suffix."""
        return self.preferences.sort_by or self.sort

    @property
    def sorts_all(self) -> bool:
        """Whether the targets of all models are sorted together."""
        return self.sort_by is not None and (self.route == "sort" or self.preferences.sorts_all)


def read_wanted(model: str, fields: dict[str, Any]) -> Wanted:
    """Read the model's name and the body's `provider`, `models` and `route`.

    Raises RequestError naming the field at fault.
    """
    preferences = NONE
    if (given := fields.get("provider")) is not None:
        try:
            preferences = msgspec.convert(given, Preferences)
        except msgspec.ValidationError as error:
            found = field_error(error, given, Preferences)
            place = f"provider{found.place}"
            raise RequestError(f"{place}: {found.said}", param=place) from None
        if preferences.enforce_distillable_text:
            raise RequestError(
                "provider.enforce_distillable_text: it is unknown which outputs may be distilled; "
                "omit it, or name providers in provider.only",
                param="provider.enforce_distillable_text",
                code="unsupported",
            )
    route = fields.get("route")
    if route not in (None, "fallback", "load-balance", "sort"):
        raise RequestError(
            f"route: {shown(route)} is not `fallback`, `load-balance` or `sort`", param="route"
        )
    listed = fields.get("models")
    if listed is None:
        listed = []
    if (
        not isinstance(listed, list)
        or len(listed) > _MOST_MODELS
        or not all(isinstance(entry, str) and entry for entry in listed)
    ):
        raise RequestError(
            f"models: must be a list of at most {_MOST_MODELS} model names", param="models"
        )
    sort: Sort | None = None
    free = False
    names: list[str] = []
    for at, name in enumerate((model, *listed)):
        check_name(name, f"models[{at - 1}]" if at else "model")
        base, mark, suffix = name.rpartition(":")
        if mark and suffix in SUFFIXES:
            sort = sort or SUFFIXES[suffix]
            name = base
        elif mark and suffix == FREE:
            free = True
            name = base
        if name and name not in names:
            names.append(name)
    if not names:
        raise RequestError("model: a name is required", param="model", code="missing_model")
    return Wanted(models=tuple(names), preferences=preferences, sort=sort, free=free, route=route)
