"""What a 404 suggests."""

from __future__ import annotations

import time

import pytest

from headrace.http.unknown_path import unknown_path
from headrace.server.app import SUGGESTED


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/v1/completions", "/v1/completions"),
        ("/v1/tokenize", "/tokenize"),
        ("/v1/completion", "/completion"),
        ("/models", "/v1/models"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/health/", "/health"),
    ],
)
def test_a_path_that_is_nearly_one(path: str, meant: str) -> None:
    text = unknown_path(path, SUGGESTED, docs=True)
    assert text == f"{path!r} does not exist here; did you mean {meant}?"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/embeddings", "/v1/files", "/v2/rerank"])
def test_a_path_that_is_none(path: str) -> None:
    assert unknown_path(path, SUGGESTED, docs=True).endswith(
        "here; GET /docs lists the paths that do"
    )
    assert unknown_path(path, SUGGESTED, docs=False).endswith("here")


def test_what_may_be_closed_is_not_suggested() -> None:
    for path in ("/admin/request", "/doc", "/openapi.jsn"):
        assert "mean" not in unknown_path(path, SUGGESTED, docs=False)


def test_a_long_path_costs_nothing() -> None:
    began = time.perf_counter()
    text = unknown_path("/v1/completions" * 100_000, SUGGESTED, docs=True)
    assert time.perf_counter() - began < 0.5
    assert len(text) < 1000
