"""The list of models."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A served name. root, parent and max_model_len as in vLLM. default_sampling_params: the
    values of sampling fields that a request leaves out."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "headrace"
    root: str | UnsetType | None = UNSET
    parent: str | UnsetType | None = UNSET
    max_model_len: int | UnsetType | None = UNSET
    default_sampling_params: dict[str, float] | UnsetType = UNSET


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/models."""

    object: str = "list"
    data: list[Model]
