"""What one request may be before it is a call: its size as its bytes arrive, and its form.

The parser reports a URL in pieces, a header when it is complete and a body in pieces; of what lies
between (half a header, a chunk's extension) it says nothing, so the bytes it was fed since it last
said anything are counted too. Nothing here reads the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from headrace.http.client_limits import MAX_HEADERS, MAX_URL_BYTES
from headrace.http.host_names import HostNames
from headrace.http.refusal import NOT_HTTP, Refusal

# Of several keys a proxy may check the first and a server the last.
_KEY_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
# Of a number of 64 bits. The parser takes any count of zeros before it, which int() does not.
_MAX_DIGITS = 20
_BODY_FRAMING = (b"content-length", b"transfer-encoding")

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class RefusedError(Exception):
    """A way out of the parser's callbacks; the meter's `refusal` says why."""


class RequestMeter:
    """The request that is being received; `begin` at each. Methods raise RefusedError."""

    def __init__(self, max_header_bytes: int, hosts: HostNames | None = None) -> None:
        """hosts: the names that requests may be addressed to; None for any."""
        self.refusal = NOT_HTTP
        """Why the request is refused, where it is."""
        self.in_head = False
        """Whether it has begun and its headers are not complete."""
        self._most = max_header_bytes
        self._hosts = hosts
        self._url_bytes = self._head_bytes = self._num_headers = 0
        self._silent_bytes = 0
        self._spoke = False

    def begin(self) -> None:
        """The first byte of a request."""
        self.in_head = True
        self.refusal = NOT_HTTP
        self._url_bytes = self._head_bytes = self._num_headers = self._silent_bytes = 0
        self._spoke = True

    def url(self, piece: bytes) -> None:
        """A piece of the URL."""
        self._url_bytes += len(piece)
        if self._url_bytes > MAX_URL_BYTES:
            message = f"the URL has more than {MAX_URL_BYTES} bytes"
            self._refuse(Refusal(414, message, code="url_too_long"))
        self._add(len(piece))

    def header(self, name: bytes, value: bytes) -> None:
        """A header, or a field after a chunked body."""
        self._num_headers += 1
        if self._num_headers > MAX_HEADERS:
            message = f"the request has more than {MAX_HEADERS} headers"
            self._refuse(Refusal(431, message, code="headers_too_large"))
        self._add(len(name) + len(value) + len(": \r\n"))

    def spoke(self) -> None:
        """The parser reported something that is no part of a head."""
        self._spoke = True

    def fed(self, size: int) -> None:
        """The parser was given so many bytes; what it reported of them came before this."""
        self._silent_bytes = 0 if self._spoke else self._silent_bytes + size
        self._spoke = False
        self._check_size()

    def _add(self, size: int) -> None:
        self._spoke = True
        self._silent_bytes = 0
        self._head_bytes += size
        self._check_size()

    def _check_size(self) -> None:
        if self._head_bytes + self._silent_bytes > self._most:
            what = "request line and headers have"
            if not self.in_head:
                what = "headers, chunk extensions and trailers together have"
            message = f"{what} more than {self._most} bytes (--max-header-bytes)"
            self._refuse(Refusal(431, message, code="headers_too_large"))

    def head_complete(self, version: str, method: bytes, headers: Headers) -> None:
        """Refuse what proxies on the way may read in another way than this server does."""
        self._spoke = True
        if version not in ("1.0", "1.1"):
            message = f"HTTP/{version} is not supported; speak HTTP/1.1"
            self._refuse(Refusal(505, message, code="http_version_not_supported"))
        if method == b"CONNECT":
            message = "CONNECT is for proxies; this is not a proxy"
            self._refuse(Refusal(400, message, code="bad_request"))
        hosts, codings, lengths, keys = [], [], [], []
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"transfer-encoding":
                codings.append(value)
            elif name == b"content-length":
                lengths.append(value)
            elif name in _KEY_HEADERS:
                keys.append(name)
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            message = f"the request has {len(hosts)} Host headers; send one"
            self._refuse(Refusal(400, message, code="bad_request"))
        for name in _KEY_HEADERS if len(keys) > 1 else ():
            if keys.count(name) > 1:
                message = f"the request has several {name.decode().title()} headers; send one"
                self._refuse(Refusal(400, message, code="bad_request"))
        if hosts and self._hosts is not None:
            foreign = self._hosts.refusal(hosts[0].decode("latin-1"))
            if foreign is not None:
                self._refuse(Refusal(403, foreign, code="unknown_host"))
        if lengths and max(map(len, lengths)) > _MAX_DIGITS:
            message = f"Content-Length has more than {_MAX_DIGITS} digits"
            self._refuse(Refusal(400, message, code="bad_request"))
        if codings and version == "1.0":
            message = "HTTP/1.0 has no Transfer-Encoding; speak HTTP/1.1"
            self._refuse(Refusal(400, message, code="bad_request"))
        if codings and [coding.lower() for coding in codings] != [b"chunked"]:
            message = "the only Transfer-Encoding supported is chunked"
            self._refuse(Refusal(501, message, code="transfer_encoding_not_supported"))

    def _refuse(self, refusal: Refusal) -> None:
        self.refusal = refusal
        raise RefusedError


def has_body(headers: Headers) -> bool:
    """Whether a request with these headers, which the parser has taken, has a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0)
        for name, value in headers
    )


def head_of_body(headers: Headers) -> bytes:
    """The head of a request whose body is framed alike, and that says nothing else."""
    lines = [b"POST / HTTP/1.1"]
    lines += [b": ".join(header) for header in headers if header[0] in _BODY_FRAMING]
    return b"\r\n".join([*lines, b"", b""])
