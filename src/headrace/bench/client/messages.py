"""A conversation in OpenAI's words, said in Anthropic's and Ollama's.

Texts and images are carried over; what else a part may be has no counterpart and is refused.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import ConfigError, shown


def anthropic_body(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """`messages` and, where there are any, what the system says."""
    system = [
        text
        for message in messages
        if message.get("role") in ("system", "developer")
        for text in _texts(message)
    ]
    told = [
        {"role": message.get("role"), "content": _anthropic_content(message.get("content"))}
        for message in messages
        if message.get("role") not in ("system", "developer")
    ]
    return {"messages": told} | ({"system": "\n\n".join(system)} if system else {})


def ollama_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages with texts joined and images as bare base64."""
    told = []
    for message in messages:
        one = {"role": message.get("role"), "content": "\n".join(_texts(message))}
        images = [_data(part)[1] for part in _parts(message) if part.get("type") == "image_url"]
        told.append(one | ({"images": images} if images else {}))
    return told


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") not in ("text", "image_url"):
                raise ConfigError(
                    f"prompt: a part {shown(part)} of a message is neither text nor image_url"
                )
        return content
    return [{"type": "text", "text": content or ""}]


def _texts(message: dict[str, Any]) -> list[str]:
    return [str(part.get("text", "")) for part in _parts(message) if part["type"] == "text"]


def _anthropic_content(content: Any) -> str | list[dict[str, Any]]:
    if not isinstance(content, list):
        return content or ""
    told: list[dict[str, Any]] = []
    for part in _parts({"content": content}):
        if part["type"] == "text":
            told.append({"type": "text", "text": part.get("text", "")})
            continue
        url = _url(part)
        source = {"type": "url", "url": url}
        if url.startswith("data:"):
            kind, data = _data(part)
            source = {"type": "base64", "media_type": kind, "data": data}
        told.append({"type": "image", "source": source})
    return told


def _url(part: dict[str, Any]) -> str:
    found = part.get("image_url")
    return str(found.get("url", "") if isinstance(found, dict) else found)


def _data(part: dict[str, Any]) -> tuple[str, str]:
    """Media type and base64 of an image that is in the message itself."""
    head, comma, data = _url(part).partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise ConfigError(
            f"prompt: the image {shown(_url(part))} is no data:...;base64 URL; put it into it"
        )
    return head.removeprefix("data:").removesuffix(";base64"), data
