"""The OpenAPI document says what the routes and the structs do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from headrace.config import ServerConfig
from headrace.engine.params import RANGES
from headrace.protocol.openai.fields import CHAT, COMPLETIONS, ENDPOINTS
from headrace.server import app
from headrace.server.openapi.dialects import DIALECT_OPERATIONS
from headrace.server.openapi.document import ALL_OPERATIONS as OPERATIONS
from headrace.server.openapi.document import document
from headrace.server.openapi.responses import RESPONSES_OPERATIONS
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

ROUTES = [(method, path) for method, path, _ in app.ROUTES]
DOCS = ("/openapi.json", "/docs", "/docs/app.js", "/docs/style.css")

Start = Callable[..., Running]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return document(ROUTES)


def properties(told: dict[str, Any], struct: str) -> dict[str, Any]:
    found: dict[str, Any] = told["components"]["schemas"][struct]["properties"]
    return found


def test_every_route_has_an_operation_and_every_operation_a_route() -> None:
    assert set(OPERATIONS) == set(ROUTES)


def test_an_unknown_route_is_an_error() -> None:
    with pytest.raises(KeyError):
        document([*ROUTES, ("GET", "/unheard-of")])


def test_the_document_is_valid(told: dict[str, Any]) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="checks the document")
    validator.validate(told)
    with pytest.raises(Exception, match="paths"):
        validator.validate({**told, "paths": 1})


def test_every_field_is_there(told: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS:
        shown = properties(told, endpoint.struct.__name__)
        assert set(shown) == {*endpoint.honoured, *endpoint.known}
        assert all(one.get("description") for one in shown.values())


@pytest.mark.parametrize(
    ("struct", "plain"),
    [
        ("Health", {"uptime_s", "error"}),
        ("EngineRestart", {"status"}),
        ("Settings", {"server"}),
    ],
)
def test_fields_of_replies_about_the_server_are_described(
    told: dict[str, Any], struct: str, plain: set[str]
) -> None:
    """plain: fields whose name says it all."""
    shown = properties(told, struct)
    described = {name for name, schema in shown.items() if schema.get("description")}
    assert described == set(shown) - plain


def test_numbers_have_the_ranges_of_the_engine(told: dict[str, Any]) -> None:
    seen = set()
    for endpoint in (CHAT, COMPLETIONS):
        shown = properties(told, endpoint.struct.__name__)
        for name in RANGES.keys() & shown.keys() - {"timeout_s", "max_tokens"}:
            number = shown[name]["anyOf"][0]
            assert (number["minimum"], number["maximum"]) == tuple(RANGES[name]), name
            seen.add(name)
    assert {"temperature", "top_p", "min_p", "seed"} <= seen


def test_fields_that_are_not_honoured_take_their_harmless_values_only(
    told: dict[str, Any],
) -> None:
    shown = properties(told, "ChatCompletionRequest")
    assert shown["reasoning_format"]["enum"] == ["auto", "deepseek", None]
    assert shown["user"]["type"] == ["string", "null"]
    assert shown["audio"]["type"] == "null"
    assert "refused" in shown["audio"]["description"]


def test_hints_are_values_that_are_taken_without_effect(told: dict[str, Any]) -> None:
    shown = properties(told, "ChatCompletionRequest")
    assert shown["verbosity"]["enum"] == ["medium", "low", "high", None]
    assert shown["prediction"]["type"] == ["object", "null"]
    for name in ("verbosity", "prediction", "service_tier", "store"):
        assert "without effect" in shown[name]["description"]
        assert "X-Ignored-Params" in shown[name]["description"]


def test_nested_fields_are_told_too(told: dict[str, Any]) -> None:
    assert properties(told, "StreamOptions")["include_obfuscation"]["enum"] == [False, True, None]
    assert properties(told, "Message")["audio"]["type"] == "null"
    assert "developer" in properties(told, "Message")["role"]["enum"]


def test_replies(told: dict[str, Any]) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        replies = told["paths"][path]["post"]["responses"]
        wanted = {"200", "400", "404", "405", "413", "415", "429", "431", "500", "503"}
        assert wanted <= set(replies)
        assert set(replies["200"]["content"]) == {"application/json", "text/event-stream"}
        assert {"x-request-id", "X-Ignored-Params"} <= set(replies["200"]["headers"])
        assert "Retry-After" in replies["429"]["headers"]
    usage = told["components"]["schemas"]["Usage"]
    assert {"prompt_tokens", "completion_tokens", "total_tokens"} <= set(usage["required"])


def test_keys_are_asked_for_where_they_are_needed(told: dict[str, Any]) -> None:
    keyed = document(ROUTES, client_key=True, admin_key=True)
    assert set(keyed["components"]["securitySchemes"]) == {"clientKey", "adminKey"}
    for (method, path), operation in OPERATIONS.items():
        plain = path.replace(":path}", "}")
        shown = keyed["paths"][plain][method.lower()]
        wanted = {"none": [], "client": [{"clientKey": []}], "admin": [{"adminKey": []}]}
        assert shown["security"] == wanted[operation.key]
        assert ("401" in shown["responses"]) == (operation.key != "none")
        assert told["paths"][plain][method.lower()]["security"] == []


def test_keys_of_the_table_are_those_the_server_asks_for(start: Start) -> None:
    config = ServerConfig(api_key=("secret",), admin_api_key="admin")
    server = start(MockEngine(says("x")), config=config)
    for (method, path), operation in OPERATIONS.items():
        reply = server.client.request(method, path.replace("{model:path}", "x"))
        assert (reply.status_code == 401) == (operation.key != "none"), (method, path)


def test_examples_are_taken(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    told = server.client.get("/openapi.json").json()
    tried = 0
    for path, methods in told["paths"].items():
        for operation in methods.values():
            if "requestBody" not in operation or path.startswith("/admin"):
                continue
            example = operation["requestBody"]["content"]["application/json"]["example"]
            # The mock's model has no tokens for filling a gap.
            wanted = 400 if path == "/infill" else 200
            assert server.post(path, example).status_code == wanted, path
            tried += 1
    by_hand = {**RESPONSES_OPERATIONS, **DIALECT_OPERATIONS}
    of_dialects = [one for one in by_hand.values() if one.takes_body]
    assert tried == len(ENDPOINTS) + len(of_dialects)


def test_it_is_served(start: Start, told: dict[str, Any]) -> None:
    reply = start(MockEngine(says("x")), loaded=False).client.get("/openapi.json")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == json.loads(json.dumps(told))


@pytest.mark.parametrize("path", DOCS)
def test_it_can_be_turned_off(start: Start, path: str) -> None:
    off = start(MockEngine(says("x")), config=ServerConfig(enable_docs=False))
    reply = off.client.get(path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert start(MockEngine(says("x"))).client.get(path).status_code == 200


@pytest.mark.process
def test_it_costs_a_start_nothing() -> None:
    source = (
        "import sys, headrace.server.app; "
        "print([name for name in sys.modules if name.startswith('headrace.server.openapi')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
