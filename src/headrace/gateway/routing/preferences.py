"""What a client may say of where its request goes: OpenRouter's words.

The `provider` object, the `models` list, suffixes of a model's name (`:nitro`, `:floor`, `:free`)
and the older `route`. Source: openrouter.ai/docs, "Provider routing" and "Model routing".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.errors import RequestError, shown

Sort = Literal["price", "throughput", "latency"]
SUFFIXES: dict[str, Sort] = {"nitro": "throughput", "floor": "price"}
FREE = "free"

_MOST_MODELS = 16
_Names = tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...]
_NotNegative = Annotated[float, Meta(ge=0)]


class MaxPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens; `request` per request."""

    prompt: _NotNegative | None = None
    completion: _NotNegative | None = None
    request: _NotNegative | None = None


class _SortObject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Sort
    # Models are tried one after another; sorting targets of several together is not done.
    partition: Literal["model"] | None = None


class Preferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `provider` object. quantizations: only targets stored so; only, ignore, order: names of
    providers, or of a provider's target ("openai/gpt-5"). enforce_distillable_text: nothing is
    known of that, so it cannot be asked for."""

    order: _Names = ()
    only: _Names = ()
    ignore: _Names = ()
    allow_fallbacks: bool = True
    require_parameters: bool = False
    data_collection: Literal["allow", "deny"] = "allow"
    zdr: bool = False
    quantizations: _Names = ()
    sort: Sort | _SortObject | None = None
    max_price: MaxPrice | None = None
    preferred_min_throughput: _NotNegative | dict[str, _NotNegative] | None = None
    preferred_max_latency: _NotNegative | dict[str, _NotNegative] | None = None
    enforce_distillable_text: bool | None = None

    @property
    def sort_by(self) -> Sort | None:
        """What it is sorted by, however it was written."""
        return self.sort.by if isinstance(self.sort, _SortObject) else self.sort


NONE = Preferences()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """models: in the order in which they are tried. sort: of a suffix. free: only what costs
    nothing."""

    models: tuple[str, ...]
    preferences: Preferences = NONE
    sort: Sort | None = None
    free: bool = False


def read_wanted(model: str, fields: dict[str, Any]) -> Wanted:
    """From the model's name and the body's `provider`, `models` and `route`.

    Raises RequestError naming the field at fault.
    """
    preferences = NONE
    if (given := fields.get("provider")) is not None:
        try:
            preferences = msgspec.convert(given, Preferences)
        except msgspec.ValidationError as error:
            said, _, at = str(error).partition(" - at `$")
            raise RequestError(
                f"provider{at.rstrip('`')}: {said}", param=f"provider{at.rstrip('`')}"
            ) from None
        if preferences.enforce_distillable_text:
            raise RequestError(
                "provider.enforce_distillable_text: nothing is known of what may be distilled; "
                "leave it out, or name providers in provider.only",
                param="provider.enforce_distillable_text",
                code="unsupported",
            )
    route = fields.get("route")
    if route not in (None, "fallback", "load-balance", "sort"):
        raise RequestError(
            f"route: {shown(route)}; `fallback` or `load-balance` is expected", param="route"
        )
    listed = fields.get("models")
    if listed is None:
        listed = []
    if (
        not isinstance(listed, list)
        or len(listed) > _MOST_MODELS
        or not all(isinstance(one, str) and one for one in listed)
    ):
        raise RequestError(
            f"models: a list of at most {_MOST_MODELS} names of models is expected", param="models"
        )
    sort: Sort | None = None
    free = False
    names: list[str] = []
    for one in (model, *listed):
        base, mark, suffix = one.rpartition(":")
        if mark and suffix in SUFFIXES:
            sort = sort or SUFFIXES[suffix]
            one = base
        elif mark and suffix == FREE:
            free = True
            one = base
        if one and one not in names:
            names.append(one)
    if not names:
        raise RequestError("model: a name is required", param="model", code="missing_model")
    return Wanted(models=tuple(names), preferences=preferences, sort=sort, free=free)
