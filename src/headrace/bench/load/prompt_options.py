"""From what was asked on the command line to the requests of a run.

The one place where the load generator meets the makers of prompts. Prompts of the warm-up are its
own: synthetic ones of the asked lengths, drawn from another source, so that they heat no prefix
cache for those that are measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.load.conversations import Conversation, conversations
from headrace.bench.load.trace_progress import TraceProgress, no_progress
from headrace.bench.prompts.exact import PromptWriter
from headrace.bench.prompts.files import has_prompts, read_prompts
from headrace.bench.prompts.images import parse_image_sizes, with_images
from headrace.bench.prompts.lengths import Independent, Lengths, parse_lengths
from headrace.bench.prompts.made import MadeWorkload
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.prompts.salt import salted
from headrace.bench.prompts.shared_prefix import shared_prefix
from headrace.bench.prompts.sharegpt import first_turns, read_sharegpt, sessions
from headrace.bench.prompts.synthetic import PromptForm, synthetic
from headrace.bench.prompts.think import parse_think_time
from headrace.bench.prompts.turns import synthetic_sessions
from headrace.bench.traces.formats import read_trace
from headrace.bench.traces.replay import TraceReplay
from headrace.bench.workload import Tokenization, WorkItem
from headrace.errors import ConfigError

# Where only a duration ends the run: prompts beyond it are the first ones again, which is told.
PROMPTS_OF_A_DURATION = 1000
# Characters, of ASCII as many bytes. A run has all of its prompts in memory: made while it is on,
# they would take the time in which chunks come.
MAX_TRACE_CHARACTERS = 2 * 2**30

FileKind = Literal["jsonl", "sharegpt"]


class PromptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for the prompts of a run."""

    input_tokens: str = "256"
    output_tokens: str = "128"
    prefix_tokens: str | None = None
    prefixes: int = 1
    dataset: Path | None = None
    dataset_kind: FileKind | None = None
    trace: Path | None = None
    """With `dataset`: files, one of them at most."""
    block_tokens: int | None = None
    """Tokens of a hash id of a trace."""
    turns: str | None = None
    think: str = "0"
    images: str | None = None
    """With `input_tokens` and `output_tokens` and `prefix_tokens` and `turns` and `think`: as
    `lengths`, `think` and `images` read them."""
    unique: bool = False
    """Words of its own in front of each prompt, from `salt_seed`."""
    salt_seed: int = 0
    seed: int = 0
    request: RequestOptions = RequestOptions()


class RunPrompts(NamedTuple):
    """The prompts that a run sends."""

    conversations: list[Conversation]
    warmup: list[Conversation]
    name: str
    fingerprint: str
    notes: tuple[str, ...]
    exact: bool
    """Whether every prompt has the wanted length, by the tokenizer."""

    @property
    def times_ns(self) -> tuple[int, ...]:
        """Of a trace; empty where the load decides."""
        times = [one[0].at_ns for one in self.conversations]
        return tuple(at for at in times if at is not None) if None not in times else ()


def make_requests(
    options: PromptOptions,
    tokenization: Tokenization,
    kind: EndpointKind,
    *,
    requests: int | None,
    warmup_requests: int,
    trace_s: float | None = None,
    making: TraceProgress = no_progress,
) -> RunPrompts:
    """making: hears of a trace's requests, whose text may be long.

    Raises ConfigError for what cannot be made, with the file and its line or the option.
    """
    _check(options, kind)
    writer = PromptWriter(tokenization)
    workload = _workload(options, writer, kind, requests, trace_s)
    items: Sequence[WorkItem] = tuple(_bounded(workload, making))
    name, fingerprint, notes = workload.name, workload.fingerprint, workload.notes
    missed = [] if isinstance(workload, TraceReplay) else list(workload.missed)
    if options.images is not None or (options.unique and not _salts_itself(options, workload)):
        made = MadeWorkload(name, items, notes=notes)
        if options.images is not None:
            sizes = parse_image_sizes(options.images, "--image-size")
            source = random.Random(f"{options.seed}:images")
            made = with_images(made, sizes, source, name=f"{name}, images", notes=notes)
        if options.unique and not _salts_itself(options, workload):
            source = random.Random(options.salt_seed)
            made = salted(made, source, name=f"{made.name}, salted", tokenization=tokenization)
        items, name, fingerprint = made.items, made.name, made.fingerprint
    if missed:
        notes = (*notes, f"{len(missed)} prompts do not have the wanted length")
    warm: list[Conversation] = []
    if warmup_requests:
        warm = conversations(_synthetic(options, writer, kind, warmup_requests, "warm-up"))
    from_file = options.dataset is not None or options.trace is not None
    exact = isinstance(workload, MadeWorkload) and not missed and not from_file
    return RunPrompts(conversations(items), warm, name, fingerprint, tuple(notes), exact)


def _bounded(workload: MadeWorkload | TraceReplay, making: TraceProgress) -> Iterator[WorkItem]:
    """Its requests, of which a trace's are made here."""
    if isinstance(workload, MadeWorkload):
        yield from workload
        return
    characters = 0
    try:
        for number, item in enumerate(workload):
            making(number, len(workload))
            characters += len(item.prompt.text or "")
            if characters > MAX_TRACE_CHARACTERS:
                raise ConfigError(
                    f"--trace {workload.name}: its first {number + 1:,} prompts are longer "
                    f"than {MAX_TRACE_CHARACTERS:,} characters together, and a run keeps all "
                    "of them in memory; send only part of them, such as --requests "
                    f"{max(1, number)}"
                )
            yield item
    finally:
        making(len(workload), len(workload))


def _workload(
    options: PromptOptions,
    writer: PromptWriter,
    kind: EndpointKind,
    requests: int | None,
    trace_s: float | None,
) -> MadeWorkload | TraceReplay:
    source = random.Random(f"{options.seed}:prompts")
    count = requests or PROMPTS_OF_A_DURATION
    if options.trace is not None and has_prompts(options.trace):
        if options.block_tokens is not None:
            raise ConfigError(
                f"--trace-block-tokens {options.block_tokens}: {options.trace} has prompts "
                "but no hash ids; omit it"
            )
        tokens = _fixed(options.output_tokens, "--output-tokens", source)
        return read_prompts(
            options.trace,
            limit=requests,
            output_tokens=tokens,
            options=options.request,
            timed=True,
        )
    if options.trace is not None:
        trace = read_trace(
            options.trace,
            limit=requests,
            duration_s=trace_s,
            block_tokens=options.block_tokens,
        )
        salts = random.Random(options.salt_seed) if options.unique else None
        return TraceReplay(trace, writer, source, options=options.request, salts=salts)
    if options.dataset is not None:
        return _file(options, options.dataset, writer, source, requests)
    if options.turns is not None:
        return synthetic_sessions(
            writer,
            count,
            parse_lengths(options.turns, "--turns"),
            _sizes(options),
            source,
            think=parse_think_time(options.think, "--think"),
            system_tokens=_prefix_tokens(options, source),
            options=options.request,
        )
    if options.prefix_tokens is not None:
        return shared_prefix(
            writer,
            count,
            options.prefixes,
            parse_lengths(options.prefix_tokens, "--prefix-tokens"),
            _sizes(options),
            source,
            options=options.request,
        )
    return _synthetic(options, writer, kind, count, "synthetic")


def _synthetic(
    options: PromptOptions, writer: PromptWriter, kind: EndpointKind, count: int, name: str
) -> MadeWorkload:
    form: PromptForm = "inputs" if kind == "openai-embeddings" else "text"
    return synthetic(
        writer,
        count,
        _sizes(options),
        random.Random(f"{options.seed}:{name}"),
        form=form,
        options=options.request,
        salts=random.Random(f"{options.salt_seed}:{name}") if options.unique else None,
        name=name,
    )


def _file(
    options: PromptOptions,
    path: Path,
    writer: PromptWriter,
    source: random.Random,
    requests: int | None,
) -> MadeWorkload:
    kind = options.dataset_kind or ("sharegpt" if path.suffix == ".json" else "jsonl")
    if kind == "jsonl":
        if options.turns is not None:
            raise ConfigError(
                f"--turns {options.turns}: prompts of a JSONL file have one turn each"
            )
        tokens = _fixed(options.output_tokens, "--output-tokens", source)
        return read_prompts(path, limit=requests, output_tokens=tokens, options=options.request)
    data = read_sharegpt(path)
    if options.turns is None:
        return first_turns(
            data, writer.tokenization, source, limit=requests, options=options.request
        )
    return sessions(
        data,
        writer.tokenization,
        source,
        limit=requests,
        think=parse_think_time(options.think, "--think"),
        max_turns=_fixed(options.turns, "--turns", source),
        options=options.request,
    )


def _fixed(text: str, flag: str, source: random.Random) -> int:
    """The one length that requests have in common."""
    return parse_lengths(text, flag).draw(1, source)[0]


def _sizes(options: PromptOptions) -> Independent:
    lengths: list[Lengths] = [
        parse_lengths(options.input_tokens, "--input-tokens"),
        parse_lengths(options.output_tokens, "--output-tokens"),
    ]
    return Independent(*lengths)


def _prefix_tokens(options: PromptOptions, source: random.Random) -> int:
    if options.prefix_tokens is None:
        return 0
    return _fixed(options.prefix_tokens, "--prefix-tokens", source)


def _salts_itself(options: PromptOptions, workload: MadeWorkload | TraceReplay) -> bool:
    """Makers that count the salt as part of the length that was asked."""
    plain = options.dataset is None and options.turns is None and options.prefix_tokens is None
    return isinstance(workload, TraceReplay) or (plain and options.trace is None)


def _check(options: PromptOptions, kind: EndpointKind) -> None:
    """Options that say two things, or one that an endpoint cannot take."""
    files: dict[str, Any] = {"--dataset": options.dataset, "--trace": options.trace}
    given = [name for name, value in files.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both set what is sent; give one of them")
    if given and options.prefix_tokens is not None:
        raise ConfigError(f"--prefix-tokens is for synthetic prompts, not for {given[0]}; omit it")
    if options.turns is not None and options.trace is not None:
        raise ConfigError("--turns: the requests of a trace have one turn each; omit it")
    if options.turns is not None and kind not in ("openai-chat", "anthropic-messages", "ollama"):
        raise ConfigError(f"--turns needs a chat endpoint, not {kind}")
    if options.turns is None and options.think != "0":
        raise ConfigError(
            f"--think {options.think} is a pause between turns; add --turns, or omit it"
        )
    if options.prefixes != 1 and options.prefix_tokens is None:
        raise ConfigError(f"--prefixes {options.prefixes} needs --prefix-tokens; add it")
    if options.prefixes != 1 and options.turns is not None:
        raise ConfigError(
            f"--prefixes {options.prefixes}: conversations share one system message; omit it"
        )
    if options.unique and options.prefix_tokens is not None:
        raise ConfigError(
            "--unique-prompts makes beginnings differ that --prefix-tokens shares; give one of them"
        )
