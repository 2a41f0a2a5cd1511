"""The part of the hub's HTTP API that fetching uses, on a loopback port, over folders of a test.

Large files are redirected to another host name (localhost for 127.0.0.1), as the hub does with its
storage. `fail`, `cut`, `lies` and `digest_prefix` make it misbehave; `requests` tells what came.
"""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

# As the hub decides by patterns: these are stored apart from the repository's git.
_LARGE = (".safetensors", ".gguf", ".bin")


@dataclass
class Repo:
    """commits: name of the file → bytes, by commit. refs: commit by branch."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    gated: bool = False


@dataclass
class MockHub:
    """repos by id; `requests`: (method, path, headers) in order."""

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    fail: dict[str, int] = field(default_factory=dict)
    cut: dict[str, list[int]] = field(default_factory=dict)
    lies: dict[str, bytes] = field(default_factory=dict)
    digest_prefix: str = ""

    def add(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Make a commit the newest of a branch, and return it."""
        one = self.repos.setdefault(repo, Repo())
        digest = hashlib.sha1(repr((repo, len(one.commits))).encode(), usedforsecurity=False)
        commit = digest.hexdigest()
        one.commits[commit] = files
        one.refs[branch] = commit
        return commit

    def add_folder(self, repo: str, folder: Path) -> str:
        """The files of a folder as a commit of main."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        return self.add(repo, files)

    def fetched(self) -> list[str]:
        """Paths of files whose bytes were asked for."""
        return [
            path
            for method, path, _ in self.requests
            if method == "GET" and ("/resolve/" in path or "/cdn/" in path)
        ]

    def find(self, request: Request) -> tuple[Repo, str] | Response:
        """The repository and commit of a request, or the hub's refusal."""
        params = request.path_params
        one = self.repos.get(f"{params['org']}/{params['name']}")
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if one is None or (one.token is not None and not one.gated and given != one.token):
            return _refuse(401, "RepoNotFound")
        revision = params.get("revision", "main")
        commit = one.refs.get(revision, revision)
        if commit not in one.commits:
            return _refuse(404, "RevisionNotFound")
        return one, commit

    async def info(self, request: Request) -> Response:
        found = self.find(request)
        if isinstance(found, Response):
            return found
        one, commit = found
        return JSONResponse(
            {
                "id": "{org}/{name}".format(**request.path_params),
                "sha": commit,
                "siblings": [
                    _sibling(name, content, self.digest_prefix)
                    for name, content in one.commits[commit].items()
                ],
            }
        )

    async def resolve(self, request: Request) -> Response:
        found = self.find(request)
        if isinstance(found, Response):
            return found
        one, commit = found
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if one.gated and given != one.token:
            return _refuse(403, "GatedRepo")
        name = request.path_params["file"]
        content = one.commits[commit].get(name)
        if content is None:
            return _refuse(404, "EntryNotFound")
        headers = {"X-Repo-Commit": commit}
        if not name.endswith(_LARGE):
            headers["ETag"] = f'"{git_oid(content)}"'
            return Response(content, headers=headers)
        digest = hashlib.sha256(content).hexdigest()
        headers |= {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"'}
        storage = self.url.replace("127.0.0.1", "localhost")
        return RedirectResponse(f"{storage}/cdn/{digest}/{name}?signature=secret", 302, headers)

    async def storage(self, request: Request) -> Response:
        digest = request.path_params["digest"]
        [content, *_] = [
            content
            for one in self.repos.values()
            for files in one.commits.values()
            for content in files.values()
            if hashlib.sha256(content).hexdigest() == digest
        ]
        name = request.path_params["file"]
        content = self.lies.get(name, content)
        start = 0
        if wanted := request.headers.get("range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start = int(first)
            content = content[: int(last) + 1] if last else content
        cuts = self.cut.get(name, [])
        end = cuts.pop(0) if cuts else len(content)
        return _Cut(content, start, end)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        self.requests.append((request.method, request.url.path, dict(request.headers)))
        for part, status in self.fail.items():
            if part in request.url.path:
                await Response("no", status)(scope, receive, send)
                return
        await self._routes(scope, receive, send)

    def __post_init__(self) -> None:
        repo = "/api/models/{org}/{name}"
        self._routes = Starlette(
            routes=[
                Route(repo, self.info),
                Route(repo + "/revision/{revision:path}", self.info),
                Route("/{org}/{name}/resolve/{revision}/{file:path}", self.resolve),
                Route("/cdn/{digest}/{file:path}", self.storage),
            ]
        )


class _Cut(Response):
    """Bytes from `start`, of which the connection ends before `end`."""

    def __init__(self, content: bytes, start: int, end: int) -> None:
        super().__init__(content[start:], 206 if start else 200)
        if start:
            self.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._sent = self.body[: max(0, end - start)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = {"type": "http.response.start", "status": self.status_code}
        await send({**status, "headers": self.raw_headers})
        whole = len(self._sent) == len(self.body)
        await send({"type": "http.response.body", "body": self._sent, "more_body": not whole})
        # Returning with more_body still true makes uvicorn drop the connection.


def git_oid(content: bytes) -> str:
    header = f"blob {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def _sibling(name: str, content: bytes, digest_prefix: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_oid(content)}
    if name.endswith(_LARGE):
        digest = digest_prefix + hashlib.sha256(content).hexdigest()
        fields["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
    return fields


def _refuse(status: int, code: str) -> Response:
    return Response(status_code=status, headers={"X-Error-Code": code, "X-Error-Message": code})


@contextmanager
def running_hub() -> Iterator[MockHub]:
    """A hub on a free loopback port, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        hub = MockHub(f"http://127.0.0.1:{sock.getsockname()[1]}")
        config = uvicorn.Config(hub, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        deadline = time.monotonic() + 20
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield hub
        finally:
            server.should_exit = True
            thread.join(20)
