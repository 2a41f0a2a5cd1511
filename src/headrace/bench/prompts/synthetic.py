"""Prompts of drawn lengths: text, token ids for completions, or texts to embed.

Lengths are exact by the client's tokenizer wherever it has a text of that length; the others are
listed. A server adds to that what its chat template and its beginning-of-text token cost.
"""

from __future__ import annotations

import random
from typing import Literal

from headrace.bench.client.prompt import Prompt
from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.lengths import Size, Sizes
from headrace.bench.prompts.made import MadeWorkload, Missed
from headrace.bench.prompts.options import NO_OPTIONS, RequestOptions
from headrace.bench.prompts.salt import draw_salts, salt_ids
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError

PromptForm = Literal["text", "token_ids", "inputs"]


def synthetic(
    writer: PromptWriter,
    count: int,
    sizes: Sizes,
    source: random.Random,
    *,
    form: PromptForm = "text",
    options: RequestOptions = NO_OPTIONS,
    salts: random.Random | None = None,
    name: str = "synthetic",
) -> MadeWorkload:
    """`count` requests. `salts`: begin each with words of its own, which count as part of it;
    prompts of a handful of tokens get fewer of them, or none.

    Texts are messages of a user where the endpoint is a chat. Raises ConfigError for fewer than
    one request.
    """
    check_count(count)
    drawn = sizes.draw(count, source)
    heads = draw_salts(count, salts) if salts else [""] * count
    items, missed = [], []
    for index, (size, head) in enumerate(zip(drawn, heads, strict=True)):
        prompt, got = written(writer, size, source, form=form, head=head, options=options)
        items.append(sized(prompt, size))
        if got != size.prompt_tokens:
            missed.append(Missed(index, size.prompt_tokens, got))
    return MadeWorkload(name, items, missed=missed)


def written(
    writer: PromptWriter,
    size: Size,
    source: random.Random,
    *,
    form: PromptForm,
    head: str,
    options: RequestOptions,
) -> tuple[Prompt, int]:
    """One prompt that begins with `head`, and the tokens that it has.

    A prompt that is too short for all words of the head begins with those that leave it a token.
    """
    while head and writer.count(head) >= size.prompt_tokens:
        head = head.rpartition(" ")[0]
    if form == "token_ids":
        ids = writer.ids(size.prompt_tokens, source)
        if head:
            ids = salt_ids(ids, head, writer.tokenization)
        return options.prompt(size.output_tokens, token_ids=ids), len(ids)
    text, got = writer.text(size.prompt_tokens, source, head=head)
    if form == "inputs":
        return options.prompt(None, inputs=(text,)), got
    return options.prompt(size.output_tokens, text=text), got


def sized(prompt: Prompt, size: Size, *, at_ns: int | None = None) -> WorkItem:
    """A request that was aimed at this size; texts to embed aim at no output."""
    return WorkItem(
        prompt=prompt,
        at_ns=at_ns,
        prompt_tokens_asked=size.prompt_tokens,
        output_tokens_asked=None if prompt.inputs is not None else size.output_tokens,
    )


def check_count(count: int, what: str = "requests") -> None:
    """Raises ConfigError for none."""
    if count < 1:
        raise ConfigError(f"{count} {what}: must be 1 or more")
