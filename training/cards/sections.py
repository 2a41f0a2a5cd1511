"""The sections of a model card that say what a member is: each gives Markdown from the evidence.

What was measured of it stands in results.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from training.cards.markdown import paragraph, table
from training.data.provenance import by_licence, licence_table
from training.members import LICENCE, MEMBERS
from training.models.head_config import HeadConfig
from training.models.moe_config import MoEConfig, config_of_shape, n_active_parameters

if TYPE_CHECKING:
    from training.cards.card import Evidence

PURPOSE = """\
It exists to try, test and measure the engine with real weights; it is not a coding assistant."""


def introduction(evidence: Evidence) -> str:
    """What made it, and from what."""
    begun = "from nothing"
    if evidence.member.kind == "head":
        begun = "to agree with headrace-base, which stays as it is"
    elif evidence.member.run not in ("base", "draft"):
        begun = "from the weights of headrace-base, which began from nothing"
    return paragraph(f"""
        {evidence.member.purpose} It was trained {begun}, by this project, with the programs in
        `training/`, on Python code and its documentation. {PURPOSE}""")


def files(evidence: Evidence) -> str:
    """What is there to load."""
    return "## Files\n\n" + table(("file", "bytes"), [*evidence.files.items()])


def shape(evidence: Evidence) -> str:
    """Kind and sizes."""
    model = evidence.note["model"]
    if "lora" in model:
        lora = model["lora"]
        rows = [
            ("kind", "LoRA adapter of headrace-base, in the layout of the peft library, BF16"),
            ("parameters", f"{evidence.n_parameters:,}"),
            ("rank, alpha", f"{lora['rank']}, {lora['alpha']}"),
            ("beside", ", ".join(lora["targets"])),
        ]
        return "## Shape\n\n" + table(("", ""), rows)
    if "head" in model:
        return "## Shape\n\n" + table(("", ""), shape_of_head(evidence))
    config = config_of_shape(model)
    rows = [
        ("architecture", str(config.to_hugging_face()["model_type"])),
        ("parameters", f"{evidence.n_parameters:,}"),
        ("hidden, layers", f"{config.hidden_size}, {config.num_hidden_layers}"),
        ("feed-forward", f"{config.intermediate_size}"),
        (
            "query heads, KV heads, head width",
            f"{config.num_attention_heads}, {config.num_key_value_heads}, {config.head_dim}",
        ),
        ("vocabulary", f"{config.vocab_size:,} entries, byte-level BPE, tied to the output"),
        ("context", f"{config.max_position_embeddings:,} tokens"),
    ]
    if isinstance(config, MoEConfig):
        rows[2:2] = [("used per token", f"{n_active_parameters(config):,} parameters")]
        experts = (
            f"{config.n_routed_experts} of width {config.moe_intermediate_size}, "
            f"{config.num_experts_per_tok} used per token, beside {config.n_shared_experts} "
            f"shared; layers without experts: the first {config.first_k_dense_replace}"
        )
        rows.append(("experts", experts))
    return "## Shape\n\n" + table(("", ""), rows)


def shape_of_head(evidence: Evidence) -> list[tuple[str, str]]:
    """Kind and sizes of a head, beside those of its base."""
    base = evidence.note["model"]["base"]
    head = HeadConfig.of_note(evidence.note["model"]["head"])
    layers = ", ".join(str(layer) for layer in head.feature_layers)
    width = len(head.feature_layers) * base["hidden_size"]
    of_base = f"the base's states behind {layers} of its {base['num_hidden_layers']} layers"
    kind = "EAGLE-3 head of headrace-base, in the form of EAGLE's repositories"
    if head.kind == "mtp":
        of_base = "the base's states behind its last norm, and further on its own"
        kind = (
            "layer for multi-token prediction of headrace-base, named as those of Qwen3-Next; its "
            "output is the base's"
        )
    heads = f"{head.num_attention_heads}, {head.num_key_value_heads}, {base['head_dim']}"
    return [
        ("kind", f"{kind}; matrices in 8 bits with a scale a row, the rest in BF16"),
        ("parameters", f"{evidence.n_parameters:,}"),
        ("hidden, layers", f"{base['hidden_size']}, 1"),
        ("features", f"{width:,} numbers: {of_base}"),
        ("feed-forward", f"{head.intermediate_size}"),
        ("query heads, KV heads, head width", heads),
        (
            "tokens it knows",
            f"{head.vocab_size:,} of {base['vocab_size']:,}, the commonest of the "
            "training text; it reads all, by the base's table",
        ),
        ("context", f"{base['max_position_embeddings']:,} tokens"),
    ]


def data(evidence: Evidence) -> str:
    """What the family learnt from."""
    train = [part for part in evidence.provenance if part.split == "train"]
    held_out = [part for part in evidence.provenance if part.split == "heldout"]
    n_bytes, n_held_out = (sum(part.n_bytes for part in of) for of in (train, held_out))
    names = ", ".join(f"{part.name} {part.version}" for part in held_out)
    begin = "What the base learnt from, and this from a part of it:"
    whose = "" if evidence.member.kind == "model" else begin
    sources = paragraph(f"""
        {whose} {sum(part.n_files for part in train):,} files ({n_bytes:,} bytes) of {len(train)}
        packages, the Python standard library among them, each under a permissive licence of its
        own; and {evidence.n_conversations:,} short conversations that a program made of their
        docstrings and signatures. It is measured on
        {sum(part.n_files for part in held_out):,} files ({n_held_out:,} bytes) of packages that
        were held out of training whole: {names} (of the standard library a few packages).""")
    rights = paragraph(f"""
        The [list of packages]({evidence.provenance_link}) gives name, version, licence and size of
        each; their licences and notices apply to passages that the model repeats. The SHA-256 of
        the list of all files was `{evidence.provenance_sha256}`. The weights are distributed under
        {LICENCE}.""")
    return f"## Data\n\n{sources}\n\n{licence_table(train)}\n\n{rights}"


def limits(evidence: Evidence) -> str:
    """What not to use it for."""
    licences = ", ".join(row[0] for row in by_licence(evidence.provenance)[:4])
    if evidence.member.kind == "head":
        return f"## Limits\n\n{limits_of_head(evidence)}"
    context = config_of_shape(evidence.note["model"].get("base", evidence.note["model"]))
    text = paragraph(f"""
        It is tiny. It writes plausible Python that often does not run, invents names, forgets what
        it was doing after some lines, and answers questions wrongly with the same confidence as
        rightly. It knows Python and the English of docstrings, and no other subject or language. It
        sees at most {context.max_position_embeddings:,} tokens. It can repeat passages of its
        training data, which are under their authors' licences ({licences} and others). It was not
        trained to be safe, truthful or helpful, and nothing it writes should be run unread.""")
    return f"## Limits\n\n{text}"


def limits_of_head(evidence: Evidence) -> str:
    """What a head is not for."""
    head, base = (evidence.note["model"][name] for name in ("head", "base"))
    unknown = base["vocab_size"] - head["vocab_size"]
    card = os.path.relpath(MEMBERS["base"].card, evidence.member.place)
    return paragraph(f"""
        It writes nothing by itself, and changes nothing of what headrace-base writes: their limits
        are those of the [base]({card}), which sees at most {base["max_position_embeddings"]:,}
        tokens. It was made for that model alone: beside other weights of the same shape it loads,
        and is seldom right. It never guesses {unknown:,} of the base's {base["vocab_size"]:,}
        tokens. It learnt on Python, its documentation and short conversations about them, in
        windows of {evidence.note["settings"]["length"]} tokens, and is right less often elsewhere.
        """)


def rebuild(evidence: Evidence) -> str:
    """The command, and how long the whole takes."""
    total_s = sum(evidence.seconds.values())
    text = paragraph(f"""
        The corpus follows the Python that assembles it: another version gives a slightly different
        model. All stages of the family that were run until this card was written, from the corpus
        to the figures, took {total_s / 60:,.0f} minutes.""")
    return f"""\
## Rebuilding it

```sh
make models                            # the whole family, from the corpus on
make models ARGS="--only {evidence.member.run}"     # this run, once what it is made from is there
```

{text}"""
