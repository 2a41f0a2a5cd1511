"""Paths, names of models and what they tell."""

from __future__ import annotations

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.gemini import GeminiApi, VertexAi
from headrace.protocol.dialects.gemini.request.model_name import (
    generation,
    is_pro,
    takes_media_in_results,
    thinking_kind,
    validates_signatures,
)

API = GeminiApi()
VERTEX = VertexAi(project="my-project", location="us-central1")


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:x"),
        ("models/gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:x"),
        ("tunedModels/mine-1", "/v1beta/tunedModels/mine-1:x"),
        ("model@001", "/v1beta/models/model%40001:x"),
        ("a&b=c+d", "/v1beta/models/a%26b%3Dc%2Bd:x"),
    ],
)
def test_paths_of_the_gemini_api(model: str, path: str) -> None:
    assert API.path(model, "x") == path


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-2.5-pro", "/publishers/google/models/gemini-2.5-pro:x"),
        ("models/gemini-2.5-pro", "/publishers/google/models/gemini-2.5-pro:x"),
        ("endpoints/123", "/endpoints/123:x"),
    ],
)
def test_paths_of_vertex(model: str, path: str) -> None:
    assert VERTEX.path(model, "x") == f"/v1/projects/my-project/locations/us-central1{path}"


@pytest.mark.parametrize(
    "model",
    ["", ".", "..", "../x", "models/..", "models/../x", "a/b", "a\\b", "a?key=1", "a#b", "a%2Fb",
     "a:delete", "a;b", "a b", "a\nb", "a\x00b", "é", "models/", "tunedModels/", "x" * 300,
     "/etc", "files/x", "\ud800"],
)  # fmt: skip
def test_path_tricks_are_refused(model: str) -> None:
    for place in (API, VERTEX):
        with pytest.raises(RequestError) as refused:
            place.path(model, "generateContent")
        assert refused.value.param == "model"


def test_project_and_location_are_held_to_the_same() -> None:
    for place in (VertexAi(project="a/b", location="x"), VertexAi(project="a", location="..")):
        with pytest.raises(RequestError):
            place.path("gemini-2.5-pro", "x")


@pytest.mark.parametrize(
    ("model", "number", "signatures", "media", "thinking"),
    [
        ("gemini-1.5-flash-002", (1, 5), False, False, "none"),
        ("gemini-2.0-flash", (2, 0), False, False, "none"),
        ("gemini-2.5-flash-lite", (2, 5), False, False, "budget"),
        ("gemini-live-2.5-flash", (2, 5), False, False, "budget"),
        ("gemini-3-pro-preview", (3, 0), True, True, "level"),
        ("gemini-3-pro-image-preview", (3, 0), False, True, "level"),
        ("models/gemini-3.1-flash-lite-preview", (3, 1), True, True, "level"),
        ("GEMINI-3.5-FLASH", (3, 5), True, True, "level"),
        ("gemini-flash-latest", (99, 0), True, True, "level"),
        ("gemini-pro", (1, 0), False, False, "none"),
        ("gemini-exp-1206", (99, 0), True, True, "level"),
        ("gemma-3-27b-it", None, False, False, "none"),
        ("endpoints/4711", None, False, False, "none"),
        ("gemini-", (99, 0), True, True, "level"),
    ],
)
def test_what_a_name_tells(
    model: str, number: tuple[int, int] | None, signatures: bool, media: bool, thinking: str
) -> None:
    assert generation(model) == number
    assert validates_signatures(model) == signatures
    assert takes_media_in_results(model) == media
    assert thinking_kind(model) == thinking


def test_the_large_kind_is_known_by_its_name() -> None:
    assert is_pro("gemini-2.5-pro")
    assert is_pro("models/gemini-3.1-pro-preview")
    assert not is_pro("gemini-2.5-flash-preview")
