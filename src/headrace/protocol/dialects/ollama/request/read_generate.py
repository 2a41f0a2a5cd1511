"""The reader of bodies of POST /api/generate: one user turn."""

from __future__ import annotations

from headrace.protocol.dialects.ollama.images import read_images
from headrace.protocol.dialects.ollama.request.fields import read_fields
from headrace.protocol.dialects.ollama.request.read_call import read_shared_fields
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text

# What only an Ollama server can do with a prompt; absent and empty are the same to it.
_BEYOND_CHAT = {
    "suffix": "it has only chat, which cannot fill in text before a suffix",
    "raw": "it has only chat, and a raw prompt is not a chat turn",
    "template": "it has only chat, which uses the model's own template",
    "context": "it has only chat, and such a context belongs to an Ollama server",
}


def read_generate(body: bytes) -> ChatCall:
    """Raises RequestError naming the field at fault. Without a prompt the model is to be loaded."""
    fields = read_fields(body)
    model = fields.text("model")
    if not model:
        raise fields.missing("model", "name the model to use")
    system, prompt = fields.text("system"), fields.text("prompt")
    images = read_images(fields)
    if not prompt and not images:
        return read_shared_fields(fields, model, (), ())
    texts = (Text(text=prompt),) if prompt else ()
    turn = Message(role="user", parts=(*images, *texts))
    return read_shared_fields(fields, model, (Text(text=system),) if system else (), (turn,))


def beyond_chat(call: ChatCall) -> tuple[str, str] | None:
    """The field, and why only an Ollama server can serve it; None if a chat may."""
    return next(((name, why) for name, why in _BEYOND_CHAT.items() if call.extra.get(name)), None)
