"""TLS: what is served, who may come, and what is said of files that do not work."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.http.client_limits import ClientLimits
from headrace.http.listen import Listener
from headrace.http.tls import tls_context
from headrace.server.app import build_app
from headrace.server.state import ServerState
from tests.server.connections.raw import serving
from tests.server.serve_process import Process

trustme = pytest.importorskip("trustme", reason="trustme makes the certificates; it is not there")


class Files:
    """Certificates of an authority, for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        server = authority.issue_cert("127.0.0.1")
        client = authority.issue_cert("client@example.org")
        self.folder = folder
        self.ca = self._write("ca.pem", authority.cert_pem.bytes())
        self.both = self._write("both.pem", server.private_key_and_cert_chain_pem.bytes())
        self.cert = self._write("cert.pem", server.cert_chain_pems[0].bytes())
        self.key = self._write("key.pem", server.private_key_pem.bytes())
        self.client = self._write("client.pem", client.private_key_and_cert_chain_pem.bytes())
        self.other_key = self._write("other.pem", client.private_key_pem.bytes())

    def _write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def trusting(files: Files, *, shows: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if shows:
        context.load_cert_chain(files.client)
    return context


def serve(config: ServerConfig) -> Any:
    state = ServerState(config=config)
    return serving(build_app(state), ClientLimits(), tls=tls_context(config))


@pytest.mark.parametrize("apart", [False, True], ids=["one file", "two files"])
def test_it_speaks_tls(files: Files, apart: bool) -> None:
    config = ServerConfig(ssl_certfile=files.both)
    if apart:
        config = ServerConfig(ssl_certfile=files.cert, ssl_keyfile=files.key)
    with serve(config) as plain:
        url = plain.replace("http:", "https:")
        with httpx.Client(verify=trusting(files)) as client:
            assert client.get(f"{url}/version").status_code == 200
            assert client.get(f"{url}/version").status_code == 200
            long = client.get(f"{url}/version", headers={"A": "b" * 40_000})
            assert long.status_code == 431
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/version")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{plain}/version")
        old = trusting(files)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert httpx.get(f"{url}/version", verify=old).status_code == 200


def test_clients_have_to_show_a_certificate(files: Files) -> None:
    with serve(ServerConfig(ssl_certfile=files.both, ssl_ca_certs=files.ca)) as plain:
        url = plain.replace("http:", "https:")
        shown = httpx.get(f"{url}/version", verify=trusting(files, shows=True))
        assert shown.status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{url}/version", verify=trusting(files))


def test_what_does_not_work_is_named(files: Files, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no PEM")
    absent = str(tmp_path / "absent.pem")
    cases: list[tuple[dict[str, str], str]] = [
        ({"ssl_keyfile": files.key}, "--ssl-keyfile .*needs --ssl-certfile"),
        ({"ssl_ca_certs": files.ca}, "--ssl-ca-certs .*needs --ssl-certfile"),
        ({"ssl_certfile": absent}, "--ssl-certfile .*absent.pem: cannot be read: No such file"),
        ({"ssl_certfile": str(tmp_path)}, "--ssl-certfile .*cannot be read: Is a directory"),
        ({"ssl_certfile": str(nonsense)}, "--ssl-certfile .*nonsense.pem: it has no usable"),
        ({"ssl_certfile": files.cert}, "--ssl-certfile .*without --ssl-keyfile the key"),
        ({"ssl_certfile": files.cert, "ssl_keyfile": absent}, "--ssl-keyfile .*absent.pem"),
        (
            {"ssl_certfile": files.cert, "ssl_keyfile": files.other_key},
            "does not belong to the certificate",
        ),
        ({"ssl_certfile": files.both, "ssl_ca_certs": absent}, "--ssl-ca-certs .*absent.pem"),
        ({"ssl_certfile": files.both, "ssl_ca_certs": str(nonsense)}, "--ssl-ca-certs .*nonsense"),
    ]
    for settings, words in cases:
        with pytest.raises(ConfigError, match=words):
            tls_context(ServerConfig(**settings))  # type: ignore[arg-type]
    assert tls_context(ServerConfig()) is None


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--ssl-certfile .*Is a directory"):
        tls_context(ServerConfig(ssl_certfile=str(tmp_path)))


def test_a_key_with_a_password_does_not_ask_for_it(files: Files, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    path = tmp_path / "locked.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match=r"--ssl-keyfile .*needs a password"):
        tls_context(ServerConfig(ssl_certfile=files.cert, ssl_keyfile=str(path)))


def test_the_url_says_https(files: Files) -> None:
    with Listener(ServerConfig(port=0, ssl_certfile=files.both)) as listener:
        assert listener.url.startswith("https://127.0.0.1:")


@pytest.mark.process
def test_headrace_serve_over_tls(
    files: Files, model: Path, started: Callable[..., Process]
) -> None:
    process = started(model, ssl_certfile=files.cert, ssl_keyfile=files.key).wait_ready()
    assert process.url.startswith("https://127.0.0.1:")
    reply = httpx.post(
        f"{process.url}/v1/completions",
        json={"prompt": "x", "max_tokens": 3},
        verify=trusting(files),
        timeout=30,
    )
    assert reply.status_code == 200


@pytest.mark.process
def test_headrace_serve_on_a_unix_socket(
    tmp_path: Path, model: Path, started: Callable[..., Process]
) -> None:
    path = tmp_path / "s.sock"
    process = started(model, uds=str(path)).wait_ready()
    assert process.url == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=30) as client:
        reply = client.post("http://any/v1/completions", json={"prompt": "x", "max_tokens": 3})
        assert reply.status_code == 200
    code, err = process.end()
    assert code == 0, err
    assert not path.exists()
