"""Hubs that answer what no hub says, and surroundings in which none can be asked."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import FetchError
from headrace.weights.store.hub_failure import CHECK_NETWORK, saying
from headrace.weights.store.model_name import HubModel
from headrace.weights.store.resolve import fetch, obtain_model
from tests.weights.store.mock_hub import MockHub

MODEL = HubModel("org/x")
COMMIT = "a" * 40


def _pull(environ: dict[str, str]) -> str:
    with pytest.raises(FetchError) as caught:
        fetch(MODEL, environ, lambda _: None)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<html>", "does not answer as a hub does (JSONDecodeError)"),
        ("[]", "gave no listing as a hub does"),
        ("null", "gave no listing as a hub does"),
        ('{"id": "org/x", "sha": 3, "siblings": []}', "gave no commit of org/x"),
        ('{"id": "org/x", "siblings": []}', "gave no commit of org/x"),
        (f'{{"id": "org/x", "sha": "{COMMIT}", "siblings": 3}}', "gave no listing as a hub does"),
        (
            f'{{"id": "org/x", "sha": "{COMMIT}", "siblings": [{{"rfilename": "a.gguf", "lfs": '
            '{"size": "x", "sha256": 3, "pointerSize": 1}}]}',
            "gave no listing as a hub does",
        ),
        (
            f'{{"id": "org/x", "sha": "{COMMIT}", "siblings": [{{"rfilename": "\\ud800.gguf"}}]}}',
            "there is nothing",
        ),
    ],
)
def test_an_answer_of_another_shape_is_said_to_be_none(
    hub: MockHub, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    async def info(self: MockHub, request: Request) -> Response:
        return Response(answer, media_type="application/json")

    monkeypatch.setattr(MockHub, "info", info)
    hub.__post_init__()
    assert said in _pull(environ)


@pytest.mark.parametrize("endpoint", ["not a url", "ftp://x"])
def test_an_endpoint_that_is_no_address(environ: dict[str, str], endpoint: str) -> None:
    said = _pull(environ | {"HF_ENDPOINT": endpoint})
    assert f"{endpoint!r} is not the address of a hub; set HF_ENDPOINT" in said


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (socket.gaierror(-2, "x"), "there is no network, or hub.example is not known to it"),
        (ConnectionRefusedError(), "hub.example refused the connection"),
        (TimeoutError(), "hub.example did not answer in time"),
        (ssl.SSLCertVerificationError(), "the certificate of hub.example is not trusted"),
    ],
)
def test_a_hub_out_of_reach_is_named_with_the_cause_and_what_helps(
    cause: OSError, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    text = _unreached(cause, tmp_path)
    assert text.startswith("org/x: https://hub.example cannot be reached (")
    assert said in text
    assert text.endswith("name a file or folder on this disk")
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "")
    text = _unreached(cause, tmp_path)
    assert said.replace("hub.example", "the proxy that HTTPS_PROXY names") in text
    assert "secret" not in text


def _unreached(cause: OSError, folder: Path) -> str:
    """The message where the library fails as it does when a connection does."""
    with (
        pytest.raises(FetchError) as caught,
        saying(MODEL, "https://hub.example", folder, CHECK_NETWORK),
    ):
        try:
            raise cause
        except OSError as error:
            raise httpx2.ConnectError("x") from error
    return str(caught.value)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_variable_that_forbids_the_network_is_named(environ: dict[str, str], name: str) -> None:
    with pytest.raises(FetchError, match=f"; without {name}, which is set, headrace pull org/x"):
        obtain_model("org/x", environ | {name: "1"}, lambda _: None)


def _pulled(environ: dict[str, str], tmp_path: Path, **more: str) -> Any:
    """The command, since the library reads its variables once."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli.main", "pull", "org/x"],
        capture_output=True, text=True, timeout=60, env=environ | more | {"HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HF_TOKEN", "hf_é☃", "HF_TOKEN has characters that no token has"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "soon", "huggingface_hub does not start"),
        ("HTTP_PROXY", "foo://me:secret@bar", "check HF_ENDPOINT, HTTP_PROXY and HTTPS_PROXY"),
    ],
)
def test_variables_nobody_can_use_are_named(
    environ: dict[str, str], tmp_path: Path, name: str, value: str, said: str
) -> None:
    stderr = _pulled(environ | {"NO_PROXY": ""}, tmp_path, **{name: value})
    assert said in stderr
    assert "secret" not in stderr
    assert "hf_" not in stderr
