"""AWS Signature Version 4: what proves to AWS who sent a request, and that it is unchanged.

Pure: the time is handed in, keys are handed in. An API key ("bearer token") needs none of this; it
is one header, `Authorization: Bearer KEY`.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

_ALGORITHM = "AWS4-HMAC-SHA256"
_END = "aws4_request"

# Proxies and HTTP clients change or add these, so that a signature over them would not hold.
_UNSIGNED = frozenset(
    ("authorization", "connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id")
)


@dataclass(frozen=True)
class Credentials:
    """Keys of an AWS identity."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    """For temporary keys (roles, SSO), else None."""


def signing_headers(
    credentials: Credentials,
    *,
    method: str,
    host: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    region: str,
    service: str,
    unix_s: float,
) -> dict[str, str]:
    """The headers to add to a request so that AWS takes it: Authorization, X-Amz-Date and others.

    host: as the Host header has it. path: as it goes over the wire, percent-encoded, with its query
    after "?". headers: those that reach AWS as they are; all are signed but such as proxies change.
    service: the name in the scope ("bedrock" for bedrock-runtime). unix_s: now; AWS allows five
    minutes of difference. The request has to go out to exactly this host, path and body.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_s))
    payload_hash = hashlib.sha256(body).hexdigest()
    added = {"X-Amz-Date": stamp}
    if credentials.session_token is not None:
        added["X-Amz-Security-Token"] = credentials.session_token
    if service == "s3":
        added["X-Amz-Content-SHA256"] = payload_hash
    signed = _canonical_headers({**headers, **added, "host": host})
    request = canonical_request(method, path, signed, payload_hash, is_s3=service == "s3")
    scope = f"{stamp[:8]}/{region}/{service}/{_END}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}"
    key = signing_key(credentials.secret_access_key, stamp[:8], region, service)
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    added["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key_id}/{scope}, "
        f"SignedHeaders={';'.join(signed)}, Signature={signature}"
    )
    return added


def canonical_request(
    method: str, path: str, signed: Mapping[str, str], payload_hash: str, *, is_s3: bool = False
) -> str:
    """The text a signature is of. signed: names in lower case and in order, values trimmed."""
    target, _, query = path.partition("?")
    lines = (
        method.upper(),
        (target or "/") if is_s3 else _canonical_path(target),
        _canonical_query(query),
        *(f"{name}:{value}" for name, value in signed.items()),
        "",
        ";".join(signed),
        payload_hash,
    )
    return "\n".join(lines)


def signing_key(secret_access_key: str, day: str, region: str, service: str) -> bytes:
    """A key for one day (YYYYMMDD), region and service."""
    key = f"AWS4{secret_access_key}".encode()
    for word in (day, region, service, _END):
        key = hmac.digest(key, word.encode(), "sha256")
    return key


def _canonical_headers(headers: Mapping[str, str]) -> dict[str, str]:
    found = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    return {name: found[name] for name in sorted(found) if name not in _UNSIGNED}


def _canonical_path(path: str) -> str:
    """Without dot segments, and encoded once more than it is on the wire (all services but S3)."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    end = "/" if segments and path.endswith("/") else ""
    return quote("/" + "/".join(segments) + end, safe="/~")


def _canonical_query(query: str) -> str:
    if not query:
        return ""
    pairs = [pair.partition("=") for pair in query.split("&")]
    encoded = sorted(
        (quote(unquote(name), safe=""), quote(unquote(value), safe="")) for name, _, value in pairs
    )
    return "&".join(f"{name}={value}" for name, value in encoded)
