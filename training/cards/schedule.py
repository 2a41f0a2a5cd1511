"""The section of a model card that says what its run was: budget, schedule, and earlier legs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training.cards.markdown import paragraph, table

if TYPE_CHECKING:
    from training.cards.card import Evidence


def training(evidence: Evidence) -> str:
    """What the run was."""
    progress, settings = evidence.note["progress"], evidence.note["settings"]
    adapter = "lora" in evidence.note["model"]
    precision = "bfloat16" if settings["bfloat16"] else "float32"
    rates = f"AdamW {settings['adamw_learning_rate']:g}"
    if not adapter:
        rates += f", Muon {settings['muon_learning_rate']:g}"
    rows = [
        ("tokens seen", f"{progress['tokens']:,}"),
        ("steps", f"{progress['step']:,} of {settings['step_tokens']:,} tokens"),
        ("sequence length", sequence_length(settings)),
        ("conversations", conversations(settings)),
        ("fill-in-the-middle", f"{settings['fim_share']:.0%} of the documents"),
        ("peak learning rates", rates),
        ("products in", f"{precision}, on a {settings.get('device', 'cpu').upper()}"),
        ("time in steps", f"{progress['counted_s'] / 60:.0f} minutes"),
    ]
    if evidence.member.run not in ("base", "draft"):
        rows[0] = ("tokens seen", f"{progress['tokens']:,}, beside those of the base")
    if evidence.machine:
        rows.append(("exported and measured on", evidence.machine))
    return "## Training\n\n" + table(("", ""), rows) + taken_up(progress) + legs(evidence.note)


def sequence_length(settings: Mapping[str, Any]) -> str:
    """Of the beginning, and from where on another."""
    short, long, turn = settings["length"], settings["long_length"], settings["long_from"]
    if turn >= 1.0:
        return f"{short:,}"
    if turn <= 0.0 or short == long:
        return f"{long:,}"
    return f"{short:,}, from {turn:.0%} of the budget on {long:,}"


def conversations(settings: Mapping[str, Any]) -> str:
    """How much of the tokens they are, and from where on."""
    if not settings["turns_share"]:
        return "none"
    share = f"{settings['turns_share']:.0%} of the tokens"
    if settings["turns_from"] > 0.0:
        share += f" from {settings['turns_from']:.0%} of the budget on"
    # Runs from before the setting learnt all of them.
    whole = not settings.get("answers_only", False)
    return f"{share}; {'all of them' if whole else 'of these the answers'} learnt"


def taken_up(progress: Mapping[str, Any]) -> str:
    """Where the run went on from a GGUF file alone; "" for a run that never did."""
    places = [f"{tokens:,}" for tokens in progress.get("taken_up_tokens", [])]
    if not places:
        return ""
    told = paragraph(f"""
        At {" and ".join(places)} tokens the run was taken up from its GGUF file alone: weights as
        Q8_0 rounds them, optimizers anew.""")
    return f"\n\n{told}"


def legs(note: Mapping[str, Any]) -> str:
    """Where the run was taken up with other settings, and which; "" for a run in one go."""
    earlier = note["progress"].get("legs", [])
    if not earlier:
        return ""
    following = [*(leg["settings"] for leg in earlier[1:]), note["settings"]]
    rows = [
        (f"{leg['tokens']:,}", changes(leg["settings"], after))
        for leg, after in zip(earlier, following, strict=True)
    ]
    told = paragraph("""
        The table is of the run's last leg. It was not made in one go: it was taken up again with
        other settings, and the learning rate went up with every larger budget and down with every
        smaller one. A run from nothing has the last settings all along, so it will not give these
        weights.""")
    return f"\n\n{told}\n\n" + table(("after tokens", "what changed"), rows)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The settings that differ, as `name` old to new."""
    names = [name for name in after if before.get(name) != after[name]]
    return ", ".join(f"`{name}` {before.get(name, 'none')} to {after[name]}" for name in names)
