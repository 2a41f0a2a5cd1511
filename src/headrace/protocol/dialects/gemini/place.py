"""The address of Gemini: the Gemini API, or Vertex AI in a project and a location.

The two speak the same but for the path and a few fields, which these say. The key is added by who
sends: `x-goog-api-key` for the Gemini API, `Authorization: Bearer` for Vertex AI.
"""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import quote

import msgspec

from headrace.errors import RequestError, shown

# Longer than any name of a model; what ends a path's segment, or its meaning.
_MOST_CHARACTERS = 256
_FORBIDDEN = frozenset("/\\?#%:;")


class GeminiApi(msgspec.Struct, frozen=True, kw_only=True):
    """generativelanguage.googleapis.com; tools, schemas and thinking are in its "v1beta" only."""

    version: str = "v1beta"

    @property
    def call_ids(self) -> bool:
        """Whether functionCall and functionResponse have an `id`."""
        return True

    def path(self, model: str, action: str) -> str:
        """The path that does `action` with `model`: a name, or "tunedModels/{name}"."""
        folder, name = _split(model, ("models", "tunedModels"))
        return f"/{_segment(self.version, 'version')}/{folder}/{_segment(name, 'model')}:{action}"


class VertexAi(msgspec.Struct, frozen=True, kw_only=True):
    """Vertex AI: {location}-aiplatform.googleapis.com, or aiplatform.googleapis.com "
    "for "global"."""

    project: str
    location: str
    version: str = "v1"

    @property
    def call_ids(self) -> bool:
        """Whether functionCall and functionResponse have an `id`: only in "v1beta1"."""
        return self.version != "v1"

    def path(self, model: str, action: str) -> str:
        """The path that does `action` with `model`: a name, or "endpoints/{id}" of a tuned one."""
        folder, name = _split(model, ("models", "endpoints"))
        where = (
            f"/{_segment(self.version, 'version')}/projects/{_segment(self.project, 'project')}"
            f"/locations/{_segment(self.location, 'location')}"
        )
        if folder == "models":
            where += "/publishers/google"
        return f"{where}/{folder}/{_segment(name, 'model')}:{action}"


Place: TypeAlias = GeminiApi | VertexAi


def _split(model: str, folders: tuple[str, str]) -> tuple[str, str]:
    """Folder and name; without a folder the name is a published model's."""
    folder, slash, name = model.partition("/")
    return (folder, name) if slash and folder in folders else ("models", model)


def _segment(name: str, what: str) -> str:
    if (
        not 0 < len(name) <= _MOST_CHARACTERS
        or name in (".", "..")
        or not name.isascii()
        or not name.isprintable()
        or " " in name
        or not _FORBIDDEN.isdisjoint(name)
    ):
        raise RequestError(
            f"{what} {shown(name)} cannot be part of a Google address: use 1 to "
            f"{_MOST_CHARACTERS} ASCII characters, without spaces and without any of "
            f"{' '.join(sorted(_FORBIDDEN))}",
            param=what,
            code="invalid_model" if what == "model" else None,
        )
    return quote(name, safe="")
