"""Words of its own at the front of every prompt, so that no server knows it from before.

At the front, because a prefix cache shares whatever comes before the first difference. Turns of
one conversation get the same salt: that they share their beginning is what sessions are about.
Equal seeds give equal salts: for prompts that no earlier run has sent, hand in a source whose seed
is new in each run; the prompts themselves stay as their own seed makes them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.bench.client.prompt import Prompt
from headrace.bench.prompts.made import MadeWorkload
from headrace.bench.prompts.words import WORDS
from headrace.bench.workload import Tokenization, WorkItem
from headrace.errors import ConfigError

# Four of WORDS: 8e11 different salts in a handful of tokens.
SALT_WORDS = 4


def draw_salts(count: int, source: random.Random) -> list[str]:
    """`count` salts, no two alike, each of SALT_WORDS words."""
    salts: dict[str, None] = {}
    while len(salts) < count:
        salts[" ".join(source.choices(WORDS, k=SALT_WORDS))] = None
    return list(salts)


def salt_ids(ids: tuple[int, ...], salt: str, tokenization: Tokenization) -> tuple[int, ...]:
    """The ids with the salt's in place of the first ones: as many as before.

    Raises ConfigError for a prompt that is shorter than the salt.
    """
    front = tuple(tokenization.encode(salt))
    if len(ids) < len(front):
        raise ConfigError(
            f"a prompt of {len(ids)} token ids: is shorter than its salt of {len(front)}; use "
            "longer prompts or omit the salt"
        )
    return front + ids[len(front) :]


def salted(
    workload: Iterable[WorkItem],
    source: random.Random,
    *,
    name: str,
    tokenization: Tokenization | None = None,
    notes: Iterable[str] = (),
) -> MadeWorkload:
    """The same requests, each (or each session) with a salt in front.

    Texts get longer by it: their asked length is what they have now, by `tokenization`, or None
    without one. Token ids keep their number. Raises ConfigError for token ids without a
    tokenization, and for a first message whose content is neither text nor parts.
    """
    items = tuple(workload)
    salts = iter(draw_salts(len(items), source))
    of_session: dict[int, str] = {}
    made = []
    for item in items:
        salt = next(salts)
        if item.session is not None:
            salt = of_session.setdefault(item.session, salt)
        prompt = _salted(item.prompt, salt, tokenization)
        asked = item.prompt_tokens_asked
        if asked is not None and prompt.token_ids is None:
            asked = _count(prompt, tokenization)
        made.append(msgspec.structs.replace(item, prompt=prompt, prompt_tokens_asked=asked))
    return MadeWorkload(name, made, notes=notes)


def _salted(prompt: Prompt, salt: str, tokenization: Tokenization | None) -> Prompt:
    change: dict[str, Any]
    if prompt.text is not None:
        change = {"text": f"{salt}\n{prompt.text}"}
    elif prompt.inputs is not None:
        change = {"inputs": tuple(f"{salt}\n{text}" for text in prompt.inputs)}
    elif prompt.messages:
        first, *rest = prompt.messages
        change = {"messages": ({**first, "content": _content(first, salt)}, *rest)}
    elif prompt.token_ids is not None and tokenization is not None:
        change = {"token_ids": salt_ids(prompt.token_ids, salt, tokenization)}
    else:
        raise ConfigError(
            "a salt for prompts of token ids needs the tokenizer; name it, or send texts"
        )
    return msgspec.structs.replace(prompt, **change)


def _content(message: dict[str, Any], salt: str) -> str | list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return f"{salt}\n{content}"
    if isinstance(content, list):
        return [{"type": "text", "text": salt}, *content]
    raise ConfigError(
        "a salt for a conversation: its first message has no content to put it before; begin it "
        "with a message that has"
    )


def _count(prompt: Prompt, tokenization: Tokenization | None) -> int | None:
    """Tokens of the text that was sent; None where templates or several inputs add to it."""
    if tokenization is None or prompt.text is None:
        return None
    return len(tokenization.encode(prompt.text))
