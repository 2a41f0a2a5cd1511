"""Who reaches the admin API, and who does not."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.gateway.admin.house import KEY, House, admin
from tests.gateway.harness import ask


async def test_the_key_opens_it_and_nothing_else_does(tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        assert (await house.client.get("/api/about")).status_code == 200
        for wrong, code in (("", "no_key"), ("Bearer other", "wrong_key"), (KEY, "no_key")):
            told = await house.client.get("/api/about", headers={"authorization": wrong})
            assert (told.status_code, told.json()["error"]["code"]) == (401, code)
            assert "www-authenticate" in told.headers and KEY not in told.text


async def test_wrong_keys_of_an_address_are_limited_and_the_right_one_is_not(
    tmp_path: Path,
) -> None:
    """Administrators behind one proxy share its address with whoever else reaches it."""
    async with admin(tmp_path) as house:
        wrong = {"authorization": "Bearer guess"}
        for _ in range(10):
            refused = await house.client.get("/api/about", headers=wrong)
            assert refused.status_code == 401
        for headers in (wrong, {"authorization": ""}):
            refused = await house.client.get("/api/about", headers=headers)
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 50
        assert (await house.client.get("/api/about")).status_code == 200
        other = httpx.ASGITransport(house.app, client=("192.0.2.2", 1))
        async with httpx.AsyncClient(transport=other, base_url="http://127.0.0.1") as client:
            assert (await client.get("/api/about", headers=wrong)).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:4001", 200),
        ("[::1]:4001", 200),
        ("localhost:9", 200),
        ("Admin.Example.org", 200),
        ("evil.example.com:4001", 403),
        ("127.0.0.1.evil.example.com", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
async def test_a_name_that_others_could_point_here_is_refused(
    host: str, status: int, tmp_path: Path
) -> None:
    async with admin(tmp_path, admin={"hosts": ("admin.example.org",)}) as house:
        for path in ("/", "/api/about"):
            assert (await house.client.get(path, headers={"host": host})).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example.com"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:4000"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
async def test_pages_of_other_sites_are_refused_also_where_no_key_is_asked_for(
    headers: dict[str, str], tmp_path: Path
) -> None:
    async with admin(tmp_path, key=None) as house:
        told = await house.client.post("/api/keys", json={}, headers=headers)
        assert (told.status_code, told.json()["error"]["code"]) == (403, "foreign_origin")
        own = {"origin": "http://127.0.0.1:4001", "sec-fetch-site": "same-origin"}
        assert (await house.client.post("/api/keys", json={}, headers=own)).status_code == 200


async def test_a_form_of_another_site_cannot_send_json(tmp_path: Path) -> None:
    async with admin(tmp_path, key=None) as house:
        told = await house.client.post(
            "/api/keys", content=b"{}", headers={"content-type": "text/plain"}
        )
        assert told.status_code == 415


async def test_every_reply_is_kept_nowhere_and_framed_by_nobody(tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        for path in ("/", "/app.js", "/api/about", "/api/nothing", "/nothing"):
            headers = (await house.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "set-cookie" not in headers


async def test_neither_port_has_what_the_other_has(tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        for path in ("/v1/models", "/v1/chat/completions", "/metrics", "/health"):
            assert (await house.client.get(path)).status_code == 404
        for path in ("/app.js", "/api/about", "/api/keys"):
            headers = {"authorization": f"Bearer {KEY}"}
            told = await ask(house.gateway.app, b"", path=path, method="GET", headers=headers)
            assert told.status == 404


async def test_the_page_needs_no_key_and_its_files_are_all_there(tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        page = await _without_key(house, "/")
        assert page.headers["content-type"].startswith("text/html")
        assert "<script>" not in page.text and "style=" not in page.text
        for path in ("app.js", "shared/base.css", "views/keys.js", "shared/icon.svg"):
            assert (await _without_key(house, f"/{path}")).status_code == 200
        for path in ("index.html", "../app.py", "views/", "views/%2e%2e/app.js"):
            assert (await _without_key(house, f"/{path}")).status_code == 404


async def _without_key(house: House, path: str) -> httpx.Response:
    return await house.client.get(path, headers={"authorization": ""})
