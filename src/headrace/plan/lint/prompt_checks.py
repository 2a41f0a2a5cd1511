"""Prompts: beginnings that could be shared, text that could be shorter, budgets by language."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.prefix import MOST_PROMPTS, common_prefix, first_break, shareable
from headrace.plan.lint.prompt_file import Prompt
from headrace.plan.lint.repeats import repeated_characters
from headrace.plan.lint.scripts import script_of
from headrace.plan.lint.subject import Subject

_PROMPTS_NEEDED = "requests: add --prompts FILE.jsonl with at least two"
_LOST_SHARE = 0.2
_LOST_CHARACTERS = 256
"""Some 64 tokens: two to four blocks of a KV cache, below which nothing is shared."""
_REPEATED_SHARE = 0.1
_FIXED_SHARE = 0.9
_LONG_CHARACTERS = 4000
_LANGUAGE_FACTOR = 1.5
_FEWEST_CHARACTERS = 200


def prefix(subject: Subject) -> Outcome:
    """Text that changes stands before text that does not."""
    prompts = _two(subject)
    if isinstance(prompts, Needs):
        return prompts
    counts = shareable(prompts)
    lost = counts.reusable - counts.shared
    if lost < _LOST_SHARE * counts.whole or lost < _LOST_CHARACTERS * min(
        len(prompts), MOST_PROMPTS
    ):
        return ()
    place = first_break(prompts)
    if place is None:
        return ()
    one, two = place.excerpts
    where = subject.prompts.where if subject.prompts else ""
    evidence = [
        Evidence("prompts looked at", min(len(prompts), MOST_PROMPTS), where),
        Evidence("they begin like another", round(counts.shared / counts.whole, 3), where,
                 "share of characters"),
        Evidence("equal in half of them, anywhere", round(counts.reusable / counts.whole, 3), where,
                 "share of characters"),
        Evidence("longest common prefix", place.offset,
                 f"{place.first.where} and {place.second.where}", "characters"),
    ]  # fmt: skip
    ids = [subject.encode(text.text) for text in (place.first, place.second)]
    if ids[0] is not None and ids[1] is not None:
        evidence.append(
            Evidence("longest common prefix", common_prefix(ids[0], ids[1]),
                     f"tokens of {subject.tokenizer_name}", "tokens"),
        )  # fmt: skip
    breaks_in = place.first.place_of(place.offset)
    evidence += [Evidence("breaks in", breaks_in, place.first.where),
                 Evidence("one has", one, place.first.where),
                 Evidence("the other has", two, place.second.where)]  # fmt: skip
    return (
        Found(
            f"{place.kind} at {breaks_in} ends the common prefix, and equal text follows",
            tuple(evidence),
            "put what changes (dates, ids, user data, search results) after what does not: "
            "at the end of the prompt, or in the last message",
        ),
    )


def prefix_order(subject: Subject) -> Outcome:
    """The same tools in another order, or written another way."""
    prompts = _two(subject)
    if isinstance(prompts, Needs):
        return prompts
    seen: dict[tuple[str, ...], Prompt] = {}
    for one in prompts:
        if not one.tools:
            continue
        meaning = tuple(sorted(json.dumps(json.loads(tool), sort_keys=True) for tool in one.tools))
        before = seen.setdefault(meaning, one)
        if before.tools == one.tools:
            continue
        at = next(i for i, (a, b) in enumerate(zip(before.tools, one.tools, strict=True)) if a != b)
        return (
            Found(
                "requests have the same tools in another order or spelling, so their "
                "prefixes cannot be shared",
                (
                    Evidence(f"tools[{at}]", before.tools[at][:80], before.where),
                    Evidence(f"tools[{at}]", one.tools[at][:80], one.where),
                ),
                "write tools and their keys in one fixed order (sort both)",
            ),
        )
    return ()


def prompt_long(subject: Subject) -> Outcome:
    """Text that stands twice in a prompt, and instructions that dwarf what is asked."""
    if subject.prompts is None:
        return Needs("requests: add --prompts FILE.jsonl")
    prompts = subject.prompts.prompts[:MOST_PROMPTS]
    worst = max(prompts, key=lambda one: repeated_characters(one.text))
    repeated = repeated_characters(worst.text)
    if _repeats(worst.text):
        count = sum(_repeats(one.text) for one in prompts)
        return (
            Found(
                "the same long text occurs more than once in a prompt",
                (
                    Evidence("repeated", repeated, worst.where, "characters"),
                    Evidence("of", len(worst.text), worst.where, "characters"),
                    Evidence("prompts with such repeats", count, subject.prompts.where),
                    *_tokens(subject, "tokens of that prompt", worst.text),
                ),
                "write it once",
            ),
        )
    if len(prompts) < 2:
        return ()
    fixed = prompts[0].text
    for one in prompts[1:]:
        fixed = fixed[: common_prefix(fixed, one.text)]
    mean = sum(len(one.text) for one in prompts) / len(prompts)
    if len(fixed) < _LONG_CHARACTERS or len(fixed) < _FIXED_SHARE * mean:
        return ()
    return (
        Found(
            "nearly all of each prompt is the same instructions",
            (
                Evidence(
                    "instructions that all prompts begin with", len(fixed), subject.prompts.where,
                         "characters"),
                Evidence("mean prompt", round(mean), subject.prompts.where, "characters"),
                *_tokens(subject, "tokens of the instructions", fixed),
            ),
            "shorten the instructions, or check that they are cached (cached tokens of a "
                "run); with an API, price them with `headrace plan cost --cached`",
            "info",
        ),
    )  # fmt: skip


def language(subject: Subject) -> Outcome:
    """One token budget for languages of which a token holds more and less text."""
    if subject.prompts is None:
        return Needs("requests: add --prompts FILE.jsonl")
    if subject.tokenizer is None:
        return subject.need("tokenizer", "a tokenizer: add --tokenizer, or --model on this disk")
    texts: dict[str, list[str]] = {}
    budgets: dict[str, Counter[int]] = {}
    for one in subject.prompts.prompts:
        text = "\n".join(piece.text for piece in one.pieces if not piece.place.endswith("role"))
        script = script_of(text)
        if script is None:
            continue
        texts.setdefault(script, []).append(text)
        if one.max_tokens is not None:
            budgets.setdefault(script, Counter())[one.max_tokens] += 1
    measured = {}
    for script, many in texts.items():
        characters = sum(len(one) for one in many)
        if characters >= _FEWEST_CHARACTERS and script in budgets:
            tokens = sum(len(subject.encode(one) or ()) for one in many)
            measured[script] = characters / max(1, tokens)
    if len(measured) < 2:
        return ()
    most, least = max(measured, key=measured.__getitem__), min(measured, key=measured.__getitem__)
    limits = {script: budgets[script].most_common(1)[0][0] for script in (most, least)}
    if measured[most] < _LANGUAGE_FACTOR * measured[least] or limits[most] < limits[least]:
        return ()
    if limits[least] > limits[most] * measured[most] / measured[least] / _LANGUAGE_FACTOR:
        return ()
    where = f"{subject.prompts.where}, measured with {subject.tokenizer_name}"
    wanted = round(limits[most] * measured[most] / measured[least])
    return (
        Found(
            f"a budget of {limits[least]:,} tokens is {limits[most] * measured[most]:,.0f} "
            f"characters of {most} and {limits[least] * measured[least]:,.0f} of {least}",
            (
                *(Evidence(f"{script}: characters of a token", round(value, 2), where)
                  for script, value in sorted(measured.items())),
                Evidence(f"max_tokens, {most}", limits[most], subject.prompts.where, "tokens"),
                Evidence(f"max_tokens, {least}", limits[least], subject.prompts.where, "tokens"),
            ),
            f"max_tokens {wanted} for {least}, or a budget in characters, converted to tokens "
                "with this tokenizer",
        ),
    )  # fmt: skip


def _repeats(text: str) -> bool:
    return repeated_characters(text) >= max(_FEWEST_CHARACTERS, _REPEATED_SHARE * len(text))


def _two(subject: Subject) -> Sequence[Prompt] | Needs:
    if subject.prompts is None or len(subject.prompts.prompts) < 2:
        return Needs(_PROMPTS_NEEDED)
    return subject.prompts.prompts


def _tokens(subject: Subject, name: str, text: str) -> tuple[Evidence, ...]:
    ids = subject.encode(text)
    if ids is None:
        return ()
    return (Evidence(name, len(ids), f"tokens of {subject.tokenizer_name}", "tokens"),)


CHECKS = (
    Check(
        "L-prefix", "prefix broken by dynamic text", "warning", ("prompts",),
        "at least two prompts; a tokenizer, to count tokens as well",
        "what changes goes after what does not", ("cr-468", "prefix-caching"), prefix,
    ),
    Check(
        "L-prefix-order", "same tools in another order", "warning", ("prompts",),
        "at least two prompts", "one order of tools and of their keys",
        ("cr-468", "prompt-caching"), prefix_order,
    ),
    Check(
        "L-prompt-long", "prompts that could be shorter", "warning", ("prompts",), "prompts",
        "write things once, shorten instructions", ("sa-148", "shorter-prompts"), prompt_long,
    ),
    Check(
        "L-language", "token budget that ignores the language", "warning", ("prompts",),
        "prompts with max_tokens in two scripts, and a tokenizer",
        "max_tokens by script", ("cr-480", "characters-per-token-english",
                                 "characters-per-token-chinese"), language,
    ),
)  # fmt: skip
