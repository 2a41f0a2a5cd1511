"""From a body of POST /api/generate to what it asks for: one turn of a user."""

from __future__ import annotations

from headrace.protocol.dialects.ollama.fields import read_fields
from headrace.protocol.dialects.ollama.images import read_images
from headrace.protocol.dialects.ollama.read_call import read_asked
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.part import Text

# What only an Ollama server can do with a prompt; absent and empty are the same to it.
_BEYOND_CHAT = {
    "suffix": "it has chat alone, which cannot write what stands before a text",
    "raw": "it has chat alone, and raw prompts are no turn of one",
    "template": "it has chat alone, whose template is the model's own",
    "context": "it has chat alone, and that context is an Ollama server's own",
}


def read_generate(body: bytes) -> ChatCall:
    """Raises RequestError naming the field at fault. Without a prompt the model is to be loaded."""
    fields = read_fields(body)
    model = fields.text("model")
    if not model:
        raise fields.missing("model", "name the model to ask")
    system, prompt = fields.text("system"), fields.text("prompt")
    images = read_images(fields)
    if not prompt and not images:
        return read_asked(fields, model, (), ())
    texts = (Text(text=prompt),) if prompt else ()
    turn = Message(role="user", parts=(*images, *texts))
    return read_asked(fields, model, (Text(text=system),) if system else (), (turn,))


def beyond_chat(call: ChatCall) -> tuple[str, str] | None:
    """The field, and why only an Ollama server can serve it; None if a chat may."""
    return next(((name, why) for name, why in _BEYOND_CHAT.items() if call.extra.get(name)), None)
