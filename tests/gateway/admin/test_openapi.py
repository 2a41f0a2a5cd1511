"""Every path is in the document and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from openapi_spec_validator import validate

from headrace.gateway.admin.operations import OPERATIONS
from tests.gateway.admin.house import admin

DOCS = Path(__file__).parents[3] / "docs" / "gateway-admin.md"
ROW = re.compile(r"^\| `(GET|POST|PATCH|DELETE) (/api/[^`?]*)", re.M)


async def test_the_document_is_valid_and_needs_the_key(tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        told = (await house.client.get("/api/openapi.json")).json()
        bare = await house.client.get("/api/openapi.json", headers={"authorization": ""})
    validate(told)
    assert bare.status_code == 401
    assert told["security"] == [{"adminKey": []}]
    shown = {(method.upper(), path) for path, one in told["paths"].items() for method in one}
    assert shown == {(one.method, re.sub(r":\w+}", "}", one.path)) for one in OPERATIONS}


def test_the_documentation_has_every_path_and_no_other() -> None:
    written = set(ROW.findall(DOCS.read_text(encoding="utf-8")))
    there = {(one.method, re.sub(r":\w+}", "}", one.path)) for one in OPERATIONS}
    assert written == there | {("GET", "/api/openapi.json")}


async def test_paths_and_methods_that_there_are_not(tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        assert (await house.client.get("/api/key")).status_code == 404
        told = await house.client.put("/api/keys", json={})
        assert (told.status_code, told.json()["error"]["code"]) == (405, "method_not_allowed")
