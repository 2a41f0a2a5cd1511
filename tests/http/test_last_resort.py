"""The reply to a request whose app fails: never a bare text."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from headrace.http.client_limits import ClientLimits
from tests.server.connections.raw import serving


async def raises(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("of an app")


async def returns(scope: Any, receive: Any, send: Any) -> None:
    """Nothing is sent."""


@pytest.mark.parametrize("app", [raises, returns])
def test_an_app_that_fails(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(app, ClientLimits()) as url:
        reply = httpx.post(url, content=b"x", headers={"x-request-id": "mine"})
    assert (reply.status_code, reply.headers["content-type"]) == (500, "application/json")
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == ("internal_error", "server_error")
    assert reply.headers["x-request-id"]
    assert "of an app" not in reply.text
    assert "ASGI" in caplog.text, "the log has what happened"
