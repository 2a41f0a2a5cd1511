"""A tool call's id that holds its signature, for dialects which have no field for the signature.

Clients give an id back as it came, so what a vendor signed comes back with it. A carried id is
`hrsig-` and URL-safe base64 without padding, hence of letters, digits, "_" and "-" alone, as
Anthropic's ids have to be. Inside are a checksum (CRC-32), the id's and the origin's length, the
id, the origin and the value. Only what `pack` itself would have written is taken for one.
"""

from __future__ import annotations

import binascii
import struct
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from headrace.protocol.neutral.part import Signature

_PREFIX = "hrsig-"
_HEAD = struct.Struct(">III")


def pack(id: str, signature: Signature | None) -> str:
    """An id from which `unpack` gets both back; `id` itself where there is nothing to carry."""
    if signature is not None:
        return _packed(id, signature)
    # Another gateway's carried id is an id like any other: ours goes around it.
    return _packed(id, Signature("", "")) if _unpacked(id) is not None else id


def unpack(id: str) -> tuple[str, Signature | None]:
    """The id and the signature that `pack` was given; an id it did not write is left as it is."""
    return _unpacked(id) or (id, None)


def _packed(id: str, signature: Signature) -> str:
    name, origin = id.encode(), signature.origin.encode()
    content = name + origin + signature.value.encode()
    head = _HEAD.pack(zlib.crc32(content), len(name), len(origin))
    return _PREFIX + urlsafe_b64encode(head + content).rstrip(b"=").decode()


def _unpacked(text: str) -> tuple[str, Signature | None] | None:
    if not text.startswith(_PREFIX):
        return None
    encoded = text.removeprefix(_PREFIX)
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        _, name_bytes, origin_bytes = _HEAD.unpack_from(raw)
        content = raw[_HEAD.size :]
        id = content[:name_bytes].decode()
        origin = content[name_bytes : name_bytes + origin_bytes].decode()
        signature = Signature(origin, content[name_bytes + origin_bytes :].decode())
    except (binascii.Error, struct.error, ValueError):
        return None
    if _packed(id, signature) != text:
        return None
    return id, signature if signature.origin or signature.value else None
