"""docs/serving.md and the files it points to say what the settings are."""

from __future__ import annotations

import re

from headrace.config import ServerConfig
from headrace.http.server import IDLE_CONNECTION_S
from headrace.server.admission.admission import RETRY_LEAST_S, RETRY_MOST_S
from tests.docs.pages import ROOT, page

PAGE = page("serving.md")
NGINX = (ROOT / "deploy" / "nginx" / "headrace.conf").read_text(encoding="utf-8")


def test_the_figures_are_the_defaults() -> None:
    config = ServerConfig()
    told = [
        f"| {config.max_num_queued_reqs} requests, {config.max_num_queued_tokens:,} prompt tokens",
        f"`--sse-keep-alive` ({config.sse_keep_alive:g} s)",
        f"`--max-header-bytes` ({config.max_header_bytes // 2**10} KiB)",
        f"`--max-body-bytes` ({config.max_body_bytes // 2**20} MiB)",
        f"`--max-connections` ({config.max_connections})",
        f"`--slow-client-timeout` ({config.slow_client_timeout:g} s)",
        f"`--engine-stall-timeout` seconds ({config.engine_stall_timeout:g})",
        f"`--max-engine-restarts` ({config.max_engine_restarts})",
        f"for {IDLE_CONNECTION_S} s",
        f"{RETRY_LEAST_S} to {RETRY_MOST_S} s",
    ]
    assert [text for text in told if text not in PAGE] == []


def test_nginx_lets_through_what_the_server_takes_and_closes_first() -> None:
    config = ServerConfig()
    size = re.search(r"client_max_body_size (\d+)m;", NGINX)
    assert size is not None
    assert int(size[1]) * 2**20 == config.max_body_bytes
    idle = re.search(r"keepalive_timeout (\d+)s;", NGINX)
    assert idle is not None
    assert int(idle[1]) < IDLE_CONNECTION_S
    assert f"127.0.0.1:{config.port}" in NGINX
    assert "proxy_buffering on" not in NGINX
