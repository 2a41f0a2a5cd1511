"""The writer of bodies that create a prediction.

Models on Replicate take a prompt and not messages. One turn of a user is the prompt as it is; a
longer conversation is written as a transcript, which ends where the assistant is to go on:

    User: ...

    Assistant: ...

    User: ...

    Assistant:
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError, shown
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.dialect import EncodedRequest
from headrace.protocol.neutral.losses import opaque_loss
from headrace.protocol.neutral.part import Media, Opaque, Refusal, Text, Thinking

_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System"}
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_VERSION = frozenset("0123456789abcdef")
_VERSION_CHARACTERS = 64

# Fields of a call that are inputs of the language models on Replicate by the same names.
_INPUTS = (
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
_UNSUPPORTED = (
    "tool_choice",
    "parallel_tool_calls",
    "min_p",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "reasoning",
    "user",
    "metadata",
    "service_tier",
)


def write_call(call: ChatCall, model: str, max_tokens_input: str = "max_tokens") -> EncodedRequest:
    """A prediction of `model`, waited for or streamed as the call wants it.

    model: "owner/name", "owner/name:version", a version alone, or "deployments/owner/name".
    max_tokens_input: the model's own name for it ("max_new_tokens" for older Llamas). Raises
    RequestError for turns of tools, more than one image, and media that are none.
    """
    path, version = _path(model)
    dropped: dict[str, None] = {}
    given = _prompt(call, dropped)
    if call.max_tokens is not None:
        given[max_tokens_input] = call.max_tokens
    given |= {name: getattr(call, name) for name in _INPUTS if getattr(call, name) is not None}
    # The list is one text with commas between: a comma within cannot be told.
    if any("," in stop for stop in call.stop):
        dropped["stop"] = None
    elif call.stop:
        given["stop_sequences"] = ",".join(call.stop)
    dropped |= dict.fromkeys(name for name in _UNSUPPORTED if getattr(call, name) is not None)
    dropped |= dict.fromkeys(_others(call))
    body: dict[str, Any] = {"input": given}
    if version:
        body["version"] = version
    headers = {"content-type": "application/json", "accept": "application/json"}
    if call.stream:
        body["stream"] = True
    else:
        headers["prefer"] = "wait"
    try:
        return EncodedRequest(path, headers, msgspec.json.encode(body), tuple(dropped))
    except RecursionError:
        raise RequestError("the request is nested too deeply", code=TOO_COMPLEX) from None


def _path(model: str) -> tuple[str, str]:
    """The path, and the version to name in the body or ""."""
    name, _, version = model.partition(":")
    if not _is_version(version) and version:
        raise _no_model(model)
    if _is_version(name) and not version:
        return "/v1/predictions", name
    parts = name.split("/")
    if not all(part and set(part) <= _NAME and part.strip(".") for part in parts):
        raise _no_model(model)
    if len(parts) == 3 and parts[0] == "deployments" and not version:
        return f"/v1/deployments/{parts[1]}/{parts[2]}/predictions", ""
    if len(parts) != 2:
        raise _no_model(model)
    if version:
        return "/v1/predictions", version
    return f"/v1/models/{parts[0]}/{parts[1]}/predictions", ""


def _is_version(text: str) -> bool:
    return len(text) == _VERSION_CHARACTERS and set(text) <= _VERSION


def _no_model(model: str) -> RequestError:
    return RequestError(
        f'model: {shown(model)} is not a Replicate model; name it "owner/name", '
        '"owner/name:version" or "deployments/owner/name"',
        param="model",
    )


def _prompt(call: ChatCall, dropped: dict[str, None]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    images: list[str] = []
    turns = [
        (_speaker(message), _text(message, f"messages[{number}]", images, dropped))
        for number, message in enumerate(call.messages)
    ]
    if len(turns) == 1 and turns[0][0] == "User":
        given["prompt"] = turns[0][1]
    else:
        told = [f"{speaker}: {text}".rstrip() for speaker, text in turns]
        # A turn of the assistant at the end is its answer's beginning.
        if not turns or turns[-1][0] != "Assistant":
            told.append("Assistant:")
        given["prompt"] = "\n\n".join(told)
    if any(text.cache is not None for text in call.instructions):
        dropped["cache"] = None
    if call.instructions:
        given["system_prompt"] = "\n\n".join(text.text for text in call.instructions)
    if len(images) > 1:
        raise RequestError(
            f"messages: hold {len(images)} images; models on Replicate accept one, so send only "
            "one",
            param="messages",
        )
    if images:
        given["image"] = images[0]
    return given


def _speaker(message: Message) -> str:
    role = message.extra.get("role") if message.role == "user" else None
    return _SPEAKERS["system" if role in ("system", "developer") else message.role]


def _text(message: Message, path: str, images: list[str], dropped: dict[str, None]) -> str:
    texts = []
    if message.name is not None:
        dropped["messages.name"] = None
    dropped |= {f"messages.extra.{name}": None for name in message.extra if name != "role"}
    for part in message.parts:
        if isinstance(part, Text | Media) and part.cache is not None:
            dropped["cache"] = None
        if isinstance(part, Text | Refusal):
            texts.append(part.text)
        elif isinstance(part, Media):
            images.append(_image(part, path))
            if part.detail not in (None, "auto"):
                dropped["messages.detail"] = None
        elif isinstance(part, Opaque):
            dropped[opaque_loss(part, message.role)] = None
        elif not isinstance(part, Thinking):
            raise RequestError(
                f"{path}: holds a tool call or result, which models on Replicate do not "
                "support; choose another provider",
                param=path,
            )
    return ("" if message.role == "assistant" else "\n\n").join(texts)


def _image(part: Media, path: str) -> str:
    if part.kind == "image" and part.url is not None:
        return part.url
    if part.kind == "image" and part.data is not None:
        return f"data:{part.mime or 'application/octet-stream'};base64,{part.data}"
    raise RequestError(
        f"{path}: holds media that cannot be sent to models on Replicate; send images by "
        "address or as base64",
        param=path,
    )


def _others(call: ChatCall) -> list[str]:
    dropped = [f"extra.{name}" for name in call.extra]
    if call.tools:
        dropped.append("tools")
    if (call.choices or 1) != 1:
        dropped.append("choices")
    if call.output is not None and call.output.kind != "text":
        dropped.append("output")
    if set(call.modalities) - {"text"}:
        dropped.append("modalities")
    return dropped
