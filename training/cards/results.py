"""The sections of a model card that say what was measured: Markdown, or "" to be left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training.cards.markdown import block, paragraph, table

if TYPE_CHECKING:
    from training.cards.card import Evidence

BASELINES = {
    "gzip": "gzip -9",
    "gzip_trained": "gzip -9 that has read training text",
    "xz": "xz -9e",
    "xz_trained": "xz that has read training text",
    "byte_5gram": "5-gram model of bytes",
    "token_5gram": "5-gram model of tokens",
}
STYLE_MEASURES = {
    "typed_functions": "functions with all types annotated",
    "annotated_parameters": "parameters annotated",
    "annotated_returns": "returns annotated",
    "docstrings": "functions and classes with a docstring",
    "comments_per_100_code_lines": "comments per 100 lines of code",
    "words_per_comment": "words per comment",
}
KINDS_OF_TEXT = {
    "code": "code",
    "answers": "answers to questions",
    "repetition": "code that repeats its beginning",
    "text": "free text (descriptions of packages)",
}
# Pairs of texts of an adapter and its base, from the same head.
SHOWN_PAIRS = 3


def prediction(evidence: Evidence) -> str:
    """Held-out bits per byte beside what is no neural network, and by package."""
    own = evidence.measured(evidence.member.run)
    total, baselines = own["total"], evidence.measured("baselines")
    rows: list[tuple[str, str, str, str, str]] = []
    compared = {name: f"headrace-{name}" for name in (evidence.member.run, "base")}
    # Members are compared on a part of the files; what the base gives on all of them is told, too.
    whole = f"{evidence.member.run}-all"
    if whole in evidence.measures:
        compared[whole] = f"headrace-{evidence.member.run}, on all held-out files"
    for name, what in compared.items():
        one = evidence.measured(name)["total"]
        rows.append(
            (
                what,
                with_error(one["bits_per_byte"], one["bits_per_byte_error"]),
                f"{one['perplexity']:.2f}",
                f"{one['top1']:.1%}",
                f"{one['top5']:.1%}",
            )
        )
    for name, what in BASELINES.items():
        found = baselines["baselines"][name]
        rows.append((what, f"{found['bits_per_byte']:.3f}", "", "", ""))
    head = ("", "bits per byte", "perplexity per token", "first guess right", "among five")
    by_package = [
        (name, one["n_bytes"], f"{one['bits_per_byte']:.3f}", f"{one['top1']:.1%}")
        for name, one in own["by_package"].items()
    ]
    part = "" if own["share"] == 1.0 else f"{own['share']:.0%} of "
    how = paragraph(f"""
        On {part}the held-out files: {total["n_documents"]:,} of them, {total["n_bytes"]:,} bytes,
        {total["n_tokens"]:,} tokens, with {own["window_tokens"]:,} tokens of context at most
        ({own["precision"]}). The 5-gram models learnt from the same training files; compressors
        read {baselines["n_heldout_bytes"]:,} bytes of held-out text. Behind ± stands the standard
        error over documents.""")
    packages = table(
        ("held-out package", "bytes", "bits per byte", "first guess right"), by_package
    )
    return f"## How well it predicts\n\n{how}\n\n{table(head, rows)}\n\n{packages}"


def with_error(value: float, error: float | None) -> str:
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def acceptance(evidence: Evidence) -> str:
    """How often the base takes what the draft proposes."""
    found = evidence.measured("acceptance")["figures"]
    rows = [
        (one["n_drafted"], f"{one['accepted']:.2f}", f"{one['accepted'] + 1:.2f}")
        for one in found["drafting"]
    ]
    head = ("drafted per pass of the base", "taken", "tokens per pass")
    how = paragraph(f"""
        Both greedy, behind {found["n_prefixes"]} prefixes of {found["prefix_tokens"]} tokens of
        held-out code, {found["continued_tokens"]} tokens each: {share_with_error(found)} of the
        base's tokens are the draft's first guess.""")
    return f"## How often the base agrees\n\n{how}\n\n{table(head, rows)}"


PROPOSING = {
    "headrace-head": "head-acceptance",
    "headrace-mtp": "mtp-acceptance",
    "headrace-draft": "acceptance",
}
"""What proposes tokens to the base, and which measure says how often it is right."""


def head_acceptance(evidence: Evidence) -> str:
    """How often the base takes what the head proposes, beside what else proposes where that was
    measured."""
    own, measure = evidence.member.name, f"{evidence.member.run}-acceptance"
    found = evidence.measured(measure)["figures"]
    beside = {own: found} | {
        name: evidence.measures[report]["figures"]
        for name, report in PROPOSING.items()
        if report in evidence.measures and name != own
    }
    shares = [(name, share_with_error(figures)) for name, figures in beside.items()]
    taken = {
        name: {row["n_drafted"]: row["accepted"] for row in figures["drafting"]}
        for name, figures in beside.items()
    }
    rows = []
    others = [name for name in beside if name != own]
    for n_drafted, accepted in taken[own].items():
        row = [n_drafted, f"{accepted:.2f}", f"{accepted + 1:.2f}"]
        for name in others:
            other = taken[name].get(n_drafted)
            row.append("" if other is None else f"{other + 1:.2f}")
        rows.append(row)
    head = ["drafted per pass of the base", "taken", "tokens per pass"]
    head += [f"with {name}" for name in others]
    how = paragraph(f"""
        Both greedy, behind {found["n_prefixes"]} prefixes of {found["prefix_tokens"]} tokens of
        held-out code, {found["continued_tokens"]} tokens each. A proposal behind others goes on
        from the head's own states, as it does when serving; a token that the head does not know is
        never right.""")
    first = table(("", "the base's tokens that are its first guess"), shares)
    told = [how, first, table(head, rows)]
    report = evidence.measured(measure)
    if report["kinds"]:
        told.append(acceptance_by_kind(report))
    return "\n\n".join(("## How often the base agrees", *told))


def acceptance_by_kind(report: Mapping[str, Any]) -> str:
    """Where the first proposals are right, by kind of text (kinds_of_text.py)."""
    kinds = report["kinds"]
    n_positions = max(len(figures["shares"]) for figures in kinds.values())
    rows = [
        (
            KINDS_OF_TEXT[kind],
            f"{figures['n_places']:,}",
            *(f"{share:.1%}" for share in figures["shares"]),
            f"{sum(figures['shares']):.2f}",
        )
        for kind, figures in kinds.items()
    ]
    head = ("held-out", "places", "1 right", *(f"{n} right" for n in range(2, n_positions + 1)))
    how = paragraph(f"""
        By position and kind of text: of all places in the base's greedy continuations, the share
        where the first proposals are right, up to that position. The last column is their sum, so
        the proposals of {n_positions} that are taken at a place, on average. Measured on
        {report["date"]}.""")
    return f"{how}\n\n{table((*head, f'taken of {n_positions}'), rows)}"


def share_with_error(figures: Mapping[str, Any]) -> str:
    """The share of first guesses that are right, and its standard error where there is one."""
    error = "" if figures["alpha_error"] is None else f" ± {figures['alpha_error']:.1%}"
    return f"{figures['alpha']:.1%}{error}"


def experts(evidence: Evidence) -> str:
    """Whether the experts helped: the base, and the base trained on for as long."""
    kinds = {
        "moe": "headrace-moe",
        "moe-control": "headrace-base, trained on for the same tokens",
        "base": "headrace-base",
    }
    controlled = "moe-control" in evidence.measures
    rows = []
    for name, what in kinds.items():
        if name == "moe-control" and not controlled:
            continue
        one = evidence.measured(name)["total"]
        bits = with_error(one["bits_per_byte"], one["bits_per_byte_error"])
        rows.append((what, bits, f"{one['perplexity']:.2f}", f"{one['top1']:.1%}"))
    head = ("", "bits per byte", "perplexity per token", "first guess right")
    begun = "It began as a copy of headrace-base that gives the same logits. Part of what it gained"
    whose = (
        "since came with the tokens alone, which the second line shows."
        if controlled
        else "since may have come with the tokens alone: the base trained on for as many, "
        "`training.moe --control`, was not made."
    )
    how = paragraph(f"{begun} {whose}")
    return f"## Whether the experts help\n\n{how}\n\n{table(head, rows)}"


def style(evidence: Evidence) -> str:
    """What the adapter changes, and what it leaves alone."""
    found = evidence.measured("adapters")
    members = found["members"]
    names = [name for name in ("base", "typed", "terse") if name in members]
    rows = [
        (what, *(shown_share(key, members[name]["shares"][key]) for name in names))
        for key, what in STYLE_MEASURES.items()
    ]
    bits = [
        (kind, *(f"{members[name]['bits_per_byte'][kind]:.3f}" for name in names))
        for kind in found["held_out"]
    ]
    head = tuple(f"headrace-{name}" for name in names)
    pairs = []
    own, base = members[evidence.member.run]["texts"], members["base"]["texts"]
    for theirs, ours in list(zip(base, own, strict=True))[:SHOWN_PAIRS]:
        pairs.append(f"The base:\n\n{block(theirs, 'python')}")
        pairs.append(f"With the adapter:\n\n{block(ours, 'python')}")
    shown = "\n\n".join(pairs)
    return f"""\
## What it changes

Each wrote on from the same {found["heads"]} beginnings `def name(` of held-out files
(temperature {found["temperature"]}, {found["max_tokens"]} tokens at most, from Q8_0):

{table(("", *head), rows)}

Bits per byte of held-out text by its kind, which show what else changed:

{table(("kind of text", *head), bits)}

The first {min(SHOWN_PAIRS, len(own))} of those beginnings:

{shown}"""


def shown_share(key: str, value: float) -> str:
    return (
        f"{value:.1f}"
        if key in ("comments_per_100_code_lines", "words_per_comment")
        else (f"{value:.1%}")
    )


def samples(evidence: Evidence) -> str:
    """Completions, none of them chosen."""
    name = f"samples-{evidence.member.run}"
    if name not in evidence.measures:
        return ""
    report: dict[str, Any] = evidence.measures[name]
    of_kind: dict[str, list[dict[str, Any]]] = {"heldout": [], "hand": [], "chat": []}
    for sample in report["samples"]:
        of_kind[sample["kind"]].append(sample)
    marks = [
        (what, f"{report['means'][key]:{form}}", f"{report['reference_means'][key]:{form}}")
        for key, what, form in (
            ("n_lines", "lines that are not blank, of 20 at most", ".1f"),
            ("empty_share", "samples without such a line", ".0%"),
            ("parsed_share", "lines in the longest beginning that parses as Python", ".0%"),
            ("brackets_match", "samples whose brackets match", ".0%"),
            ("indented_share", "lines of code indented as Python allows there", ".0%"),
        )
        if key in report["means"] and key in report["reference_means"]
    ]
    drawn = [
        f"`{sample['source']}`\n\n{block(sample['prompt'], 'python')}\n\ngoes on:\n\n"
        f"{block(sample['completion'], 'python')}"
        for sample in of_kind["heldout"]
    ]
    hand, chat = ([_pair(sample) for sample in of_kind[kind]] for kind in ("hand", "chat"))
    first = of_kind["heldout"][0] if of_kind["heldout"] else None
    how = "" if first is None else f", temperature {first['temperature']}, top-p {first['top_p']}"
    chats = "" if not chat else "\n\n### Chats\n\nGreedy.\n\n" + "\n\n".join(chat)
    held_out = f"""\
### Held-out functions

Drawn and continued with the seed {report["seed"]}{how}.

{table(("", "samples", "what stands in the files"), marks)}

{chr(10).join(f"{text}{chr(10)}" for text in drawn)}
"""
    return f"""\
## Samples

Written by headrace from `{report["model"]}`; nothing was chosen after the fact.

{held_out if drawn else ""}### Beginnings

Greedy; the last one is to be filled in the middle.

{(chr(10) * 2).join(hand)}{chats}"""


def _pair(sample: dict[str, Any]) -> str:
    return f"{block(sample['prompt'])}\n\ngoes on:\n\n{block(sample['completion'])}"


def agreement(evidence: Evidence) -> str:
    """What verify.py and perplexity.py found, where they were run."""
    return other_software(evidence.measures, evidence.member.run)


def other_software(measures: Mapping[str, Any], run: str) -> str:
    """The section about other software, from the reports of the member `run` among `measures`."""
    report = measures.get(f"verify-{run}")
    if report is None:
        return ""
    rows = [
        (
            entry["what"],
            f"{entry['same_prompts']} of {entry['prompts']}",
            f"{entry['same_tokens']:,} of {entry['tokens']:,}",
        )
        for entry in [*report["exact"], *report["rounded"]]
    ]
    head = ("", "prompts continued as transformers does", "tokens before a difference")
    weights = "With the weights as the GGUF file holds them, " if report.get("taken_up") else ""
    within = f"{report['logit_difference']:.1e} (float32)"
    section = f"""\
## Other software

{weights}transformers gives the trainer's logits within {within}."""
    if rows:
        section += f""" Greedy
continuations against those of transformers in float32:

{table(head, rows)}"""
    return "\n\n".join(part for part in (section, perplexities(measures, run)) if part)


def perplexities(measures: Mapping[str, Any], run: str) -> str:
    """headrace's perplexity beside llama.cpp's, where perplexity.py was run."""
    report = measures.get(f"perplexity-{run}")
    if report is None:
        return ""
    rows = [
        (row["kind"], f"{row['headrace']:.3f}", f"{row['llama_cpp']:.3f}", f"{row['error']:.2f}")
        for row in report["rows"]
    ]
    texts = ", ".join(f"`{name}`" for name in report["texts"])
    how = paragraph(f"""
        Perplexity per token over {texts} of Python {report["python"]}, one behind the other
        ({report["n_bytes"]:,} bytes, held out of training), in {report["windows"]} windows of
        {report["context"]} tokens, both programs reading the same file:""")
    return f"{how}\n\n{table(('', 'headrace', 'llama.cpp', 'standard error'), rows)}"
