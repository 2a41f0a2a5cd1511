"""Prompts of which many share a beginning: for prefix caches and routers that know of them.

Like a few system prompts, or documents, each with many questions: N prefixes, and suffixes of their
own behind them. A prefix is the same text in each of its prompts; the prompts' lengths are exact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.lengths import Lengths, Size, Sizes
from headrace.bench.prompts.made import MadeWorkload, Missed
from headrace.bench.prompts.options import NO_OPTIONS, RequestOptions
from headrace.bench.prompts.synthetic import check_count, sized
from headrace.bench.workload import WorkItem


def shared_prefix(
    writer: PromptWriter,
    count: int,
    prefixes: int,
    prefix_lengths: Lengths,
    suffix_sizes: Sizes,
    source: random.Random,
    *,
    shuffled: bool = True,
    token_ids: bool = False,
    options: RequestOptions = NO_OPTIONS,
    name: str = "shared-prefix",
) -> MadeWorkload:
    """`count` requests over `prefixes` beginnings, each used equally often, or once more.

    suffix_sizes: what comes behind the prefix, and the answer. shuffled: in random order; otherwise
    all of one prefix before those of the next, where a cache needs to hold but one. Raises
    ConfigError for fewer requests or prefixes than one.
    """
    check_count(count)
    check_count(prefixes, "prefixes")
    lengths = prefix_lengths.draw(prefixes, source)
    suffixes = suffix_sizes.draw(count, source)
    order = sorted(index % prefixes for index in range(count))
    if shuffled:
        source.shuffle(order)
    if token_ids:
        return MadeWorkload(name, _of_ids(writer, lengths, order, suffixes, source, options))
    fronts = [writer.text(tokens, source) for tokens in lengths]
    items, missed = [], []
    for index, (which, suffix) in enumerate(zip(order, suffixes, strict=True)):
        size = Size(lengths[which] + suffix.prompt_tokens, suffix.output_tokens)
        text, got = writer.text(size.prompt_tokens, source, head=fronts[which].text)
        items.append(sized(options.prompt(size.output_tokens, text=text), size))
        if got != size.prompt_tokens:
            missed.append(Missed(index, size.prompt_tokens, got))
    return MadeWorkload(name, items, missed=missed)


def _of_ids(
    writer: PromptWriter,
    lengths: Sequence[int],
    order: Sequence[int],
    suffixes: Sequence[Size],
    source: random.Random,
    options: RequestOptions,
) -> list[WorkItem]:
    fronts = [writer.ids(tokens, source) for tokens in lengths]
    items = []
    for which, suffix in zip(order, suffixes, strict=True):
        ids = fronts[which] + writer.ids(suffix.prompt_tokens, source)
        prompt = options.prompt(suffix.output_tokens, token_ids=ids)
        items.append(sized(prompt, Size(len(ids), suffix.output_tokens)))
    return items
