"""Strings that are no UTF-8, wherever JSON of somebody else is read: an error, and no traceback."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.bench.client.endpoints import Endpoint
from headrace.bench.journal import FOLDER, read_journal
from headrace.bench.load.probe import look
from headrace.bench.mock.request import RequestError, read_request
from headrace.bench.report.files import read_requests
from headrace.bench.series import SERIES, read_series
from headrace.catalog.importing.litellm import read_litellm
from headrace.errors import CatalogError, ConfigError
from headrace.plan.lint.prompt_file import read_prompts
from tests.bench.misbehaving import always, good_reply, misbehaving, whole

TEXT = b'{"model": "\xff"}\n'


def test_in_what_an_endpoint_lists() -> None:
    listed = always(whole(200, b'{"data": [{"id": "m"}, {"id": "\xff"}]}'))
    with misbehaving(always(good_reply()), get=listed) as url:
        found = asyncio.run(look(Endpoint(base_url=url, kind="openai-chat", model="")))
    assert found.models == ("m", "\ufffd")


def test_in_files_of_a_run(tmp_path: Path) -> None:
    (tmp_path / SERIES).write_bytes(TEXT)
    with pytest.raises(ConfigError, match="is not a list of runs"):
        read_series(tmp_path)
    path = tmp_path / "requests.jsonl"
    path.write_bytes(TEXT)
    with pytest.raises(ConfigError, match="line 1"):
        list(read_requests(path))
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "run.json").write_bytes(TEXT)
    with pytest.raises(ConfigError, match="was not written by this version of headrace"):
        read_journal(tmp_path, lambda frames: [])
    with pytest.raises(ConfigError, match=r"requests.jsonl:1: is not a JSON object"):
        read_prompts(path)


def test_in_what_the_mock_is_asked_and_in_a_price_table() -> None:
    with pytest.raises(RequestError, match="the body is not JSON"):
        read_request("chat", TEXT, "m")
    with pytest.raises(CatalogError, match="not valid JSON"):
        read_litellm(TEXT)
