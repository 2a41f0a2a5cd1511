"""Images for endpoints that see: PNG files of any size, in the message as data URLs.

What an image costs a model depends on its width and height, not on what it shows; what it costs the
network does depend on that. "tiles" (coloured squares) compresses well, "noise" not at all, which
is three bytes a pixel. Equal sources give equal pixels; equal bytes also need the same zlib.
"""

from __future__ import annotations

import base64
import random
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.bench.prompts.made import MadeWorkload
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError, shown

Picture = Literal["tiles", "noise"]

# Above what any endpoint takes; noise of that size would be 192 MiB.
MAX_SIDE_PIXELS = 8192

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TILE_PIXELS = 16
_CHANNELS = 3
# Values of the PNG header: bits of a channel, colour type "RGB", and the filter that keeps bytes.
_BIT_DEPTH, _TRUECOLOUR, _NO_FILTER = 8, 2, b"\0"


class ImageSize(NamedTuple):
    """The size of an image in pixels."""

    width: int
    height: int


def parse_image_sizes(text: str, field: str) -> tuple[ImageSize, ...]:
    """`512x512`, or several with commas. Raises ConfigError that names `field`."""
    sizes = []
    for part in "".join(text.split()).split(","):
        found = re.fullmatch(r"([0-9]{1,9})[x×]([0-9]{1,9})", part)
        if not found:
            raise ConfigError(
                f"{field} {shown(text)}: {shown(part)} is not a size; write width and height "
                "in pixels, like 512x512 or 1024x768,512x512"
            )
        sizes.append(_checked(ImageSize(int(found[1]), int(found[2])), field))
    return tuple(sizes)


def png(size: ImageSize, source: random.Random, picture: Picture = "tiles") -> bytes:
    """An RGB image of this size, as the bytes of a file."""
    width, height = _checked(size, "image")
    rows = _noise(width, height, source) if picture == "noise" else _tiles(width, height, source)
    header = struct.pack(">IIBBBBB", width, height, _BIT_DEPTH, _TRUECOLOUR, 0, 0, 0)
    # Noise does not get smaller, so no time is spent on trying.
    packed = zlib.compress(rows, 1 if picture == "noise" else 6)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def data_url(image: bytes) -> str:
    """The image itself as a URL."""
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def with_images(
    workload: Iterable[WorkItem],
    sizes: Sequence[ImageSize],
    source: random.Random,
    *,
    name: str,
    per_request: int = 1,
    picture: Picture = "tiles",
    notes: Iterable[str] = (),
) -> MadeWorkload:
    """The same requests with images behind the text of the user's last message.

    Each image is another one, of a size drawn from `sizes`; asked lengths stay those of the text,
    because what an image costs is the model's own affair. Raises ConfigError for prompts that are
    no conversation: token ids and texts to embed.
    """
    if per_request < 1 or not sizes:
        raise ConfigError(
            f"images: {per_request} of {len(sizes)} sizes in each request; use at least one"
        )
    made = []
    for item in workload:
        parts = [
            {
                "type": "image_url",
                "image_url": {"url": data_url(png(source.choice(sizes), source, picture))},
            }
            for _ in range(per_request)
        ]
        prompt = msgspec.structs.replace(
            item.prompt, text=None, messages=_with_parts(item.prompt.as_messages(), parts)
        )
        made.append(msgspec.structs.replace(item, prompt=prompt))
    return MadeWorkload(name, made, notes=notes)


def _with_parts(
    messages: list[dict[str, Any]], parts: list[dict[str, Any]]
) -> tuple[dict[str, Any], ...]:
    users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
    if not users:
        raise ConfigError("images: the conversation has no user message; add one")
    last = messages[users[-1]]
    content = last.get("content")
    before = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    changed = {**last, "content": [*before, *parts]}
    return (*messages[: users[-1]], changed, *messages[users[-1] + 1 :])


def _checked(size: ImageSize, field: str) -> ImageSize:
    for side in size:
        if not 1 <= side <= MAX_SIDE_PIXELS:
            raise ConfigError(
                f"{field} {size.width}x{size.height}: {side} is not from 1 to {MAX_SIDE_PIXELS} "
                "pixels"
            )
    return size


def _noise(width: int, height: int, source: random.Random) -> bytes:
    return b"".join(_NO_FILTER + source.randbytes(width * _CHANNELS) for _ in range(height))


def _tiles(width: int, height: int, source: random.Random) -> bytes:
    """Squares of one colour each; those at the right and lower edges are cut."""
    across = -(-width // _TILE_PIXELS)
    rows = []
    for top in range(0, height, _TILE_PIXELS):
        colours = source.randbytes(across * _CHANNELS)
        row = b"".join(
            colours[at : at + _CHANNELS] * _TILE_PIXELS for at in range(0, len(colours), _CHANNELS)
        )
        rows.append((_NO_FILTER + row[: width * _CHANNELS]) * min(_TILE_PIXELS, height - top))
    return b"".join(rows)


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Length, kind, data, and the check sum of kind and data."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
