"""PNG files, read back by hand, and where they go in a message."""

from __future__ import annotations

import base64
import random
import struct
import zlib

import pytest

from headrace.bench.client.prompt import Prompt
from headrace.bench.prompts.images import (
    ImageSize,
    Picture,
    data_url,
    parse_image_sizes,
    png,
    with_images,
)
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError


def pixels(image: bytes) -> tuple[int, int, bytes]:
    """Width, height and rows of an RGB file without filters; every check sum is looked at."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(image):
        (length,) = struct.unpack_from(">I", image, at)
        kind, data = image[at + 4 : at + 8], image[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", image, at + 8 + length) == (zlib.crc32(kind + data),)
        parts[kind] = data
        at += 12 + length
    assert list(parts) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert (depth, colour, rest) == (8, 2, [0, 0, 0])
    rows = zlib.decompress(parts[b"IDAT"])
    stride = 1 + 3 * width
    assert len(rows) == stride * height
    assert {rows[row * stride] for row in range(height)} == {0}
    return width, height, b"".join(rows[r * stride + 1 : (r + 1) * stride] for r in range(height))


@pytest.mark.parametrize("picture", ["tiles", "noise"])
@pytest.mark.parametrize("size", [(1, 1), (16, 16), (17, 33), (640, 7)])
def test_sizes(size: tuple[int, int], picture: Picture) -> None:
    width, height, rows = pixels(png(ImageSize(*size), random.Random(1), picture))
    assert (width, height) == size
    if width * height > 500:
        assert len(set(rows)) > 2


def test_tiles_are_small_and_noise_is_not() -> None:
    size = ImageSize(256, 256)
    assert len(png(size, random.Random(1))) < 20_000
    assert len(png(size, random.Random(1), "noise")) > 3 * 256 * 256


def test_equal_seeds_make_equal_images() -> None:
    size = ImageSize(40, 40)
    assert png(size, random.Random(2)) == png(size, random.Random(2))
    assert png(size, random.Random(2)) != png(size, random.Random(3))


def test_in_a_message() -> None:
    made = with_images(
        [
            WorkItem(prompt=Prompt(text="what is this?", max_tokens=7), prompt_tokens_asked=4),
            WorkItem(
                prompt=Prompt(
                    messages=(
                        {"role": "user", "content": "first"},
                        {"role": "assistant", "content": "yes"},
                        {"role": "user", "content": [{"type": "text", "text": "second"}]},
                    )
                )
            ),
        ],
        [ImageSize(8, 8), ImageSize(9, 9)],
        random.Random(4),
        name="images",
        per_request=2,
    )
    first, second = (one.prompt.messages or () for one in made)
    assert [part["type"] for part in first[0]["content"]] == ["text", "image_url", "image_url"]
    assert first[0]["content"][0]["text"] == "what is this?"
    assert made.items[0].prompt.max_tokens == 7
    assert [one["content"] for one in second[:2]] == ["first", "yes"]
    urls = [
        part["image_url"]["url"] for one in (first[0], second[2]) for part in one["content"][1:]
    ]
    assert len(set(urls)) == 4
    for url in urls:
        head, _, data = url.partition(",")
        assert head == "data:image/png;base64"
        assert pixels(base64.b64decode(data, validate=True))[0] in (8, 9)
    assert data_url(b"abc") == "data:image/png;base64,YWJj"


@pytest.mark.parametrize(
    "prompt", [Prompt(token_ids=(1,)), Prompt(inputs=("a",)), Prompt(messages=())]
)
def test_prompts_that_take_no_images(prompt: Prompt) -> None:
    with pytest.raises(ConfigError):
        with_images([WorkItem(prompt=prompt)], [ImageSize(1, 1)], random.Random(1), name="x")


def test_sizes_as_people_write_them() -> None:
    assert parse_image_sizes("512x512, 1024×768", "images") == ((512, 512), (1024, 768))
    for text in ("", "512", "0x5", "9999x1", "axb", "1x1,"):
        with pytest.raises(ConfigError, match="images"):
            parse_image_sizes(text, "images")
