"""Images, which Ollama takes as bare base64 without saying what they are."""

from __future__ import annotations

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama.request.fields import Fields
from headrace.protocol.neutral.part import Media

# How the first bytes of a file look in base64.
_MARKS = (
    ("/9j/", "image/jpeg"),
    ("iVBORw0KGgo", "image/png"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("Qk", "image/bmp"),
)
_ADDRESSES = ("http:", "https:", "data:", "file:")


def media(data: str) -> Media:
    """An image in base64; its type is recognised by its first bytes."""
    if "\n" in data or "\r" in data:
        data = data.replace("\r", "").replace("\n", "")
    mime = next((mime for mark, mime in _MARKS if data.startswith(mark)), "")
    return Media(kind="image", mime=mime, data=data)


def read_images(message: Fields) -> tuple[Media, ...]:
    """Raises RequestError for addresses."""
    images = []
    for number, data in enumerate(message.texts("images")):
        path = message.at(f"images[{number}]")
        if data[:6].lower().startswith(_ADDRESSES):
            raise RequestError(
                f"{path}: {data[:40]!r} is an address; send only the image's bytes as base64",
                param=path,
            )
        if not data or not data.isascii():
            raise RequestError(f"{path}: is not base64", param=path)
        images.append(media(data))
    return tuple(images)


def write_image(part: Media, path: str) -> str:
    """Base64 of an image; raises RequestError for what Ollama cannot be given."""
    if part.kind != "image":
        raise RequestError(
            f"{path}: Ollama accepts images but no {part.kind}; omit it or choose another provider",
            param=path,
        )
    if part.data is None:
        raise RequestError(
            f"{path}: Ollama does not fetch images; send the image's bytes as base64",
            param=path,
        )
    return part.data
