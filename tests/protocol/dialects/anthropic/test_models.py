"""The list of models in Anthropic's form."""

from __future__ import annotations

import json

from headrace.protocol.dialects.anthropic.models import write_model, write_models


def test_all_models_are_one_page() -> None:
    page = json.loads(write_models(["a", "b"], 1_700_000_000))
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "a", "b")
    assert page["data"][1] == json.loads(write_model("b", 1_700_000_000)) == {
        "type": "model", "id": "b", "display_name": "b", "created_at": "2023-11-14T22:13:20Z"
    }  # fmt: skip
    empty = json.loads(write_models([], 0))
    assert (empty["data"], empty["first_id"], empty["last_id"]) == ([], None, None)
