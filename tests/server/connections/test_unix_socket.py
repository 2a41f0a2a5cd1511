"""--uds: what may be replaced, what may not, and what is left behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.http.listen import Listener


def listener(path: Path) -> Listener:
    return Listener(ServerConfig(uds=str(path)))


def stale(path: Path) -> None:
    """What a server that was killed leaves."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()


def test_it_listens_for_its_user_only_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    before = os.umask(0)
    try:
        with listener(path) as one:
            assert one.url == f"unix:{path}"
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
    finally:
        assert os.umask(before) == 0
    assert not path.exists()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    stale(path)
    with listener(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_socket_that_is_in_use_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listener(path):
        with pytest.raises(ConfigError, match=r"--uds .*another process listens there"):
            listener(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_something_else_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("words")
    elif kind == "folder":
        path.mkdir()
    else:
        (tmp_path / "target").write_text("words")
        path.symlink_to(tmp_path / "target")
    with pytest.raises(ConfigError, match=r"--uds .*not a socket"):
        listener(path)
    assert path.exists()


def test_a_path_that_does_not_work(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "s", tmp_path / ("x" * 200)):
        with pytest.raises(ConfigError, match=r"--uds .*cannot listen there"):
            listener(path)


def test_only_its_own_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    one = listener(path)
    path.unlink()
    with listener(path):
        one.close()
        assert path.exists()
    one.close()
    assert not path.exists()


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Listener(ServerConfig(uds="s")) as one:
        assert one.url == f"unix:{tmp_path / 's'}"
        monkeypatch.chdir("/")
    assert not (tmp_path / "s").exists()
