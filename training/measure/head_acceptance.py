"""How often a base takes what a head of it proposes, on held-out code, both greedy.

Prefixes, continuations and figures are those of acceptance.py, so a head stands beside a draft. A
head goes on from states of its own, so a later proposal is another guess than a first one: each
depth of `Head.forward` is read. Entry i at depth n is what it says of token i + 2 with the base's
features up to i - n and the true tokens between, which is what a chain has that agreed so far. So
the chain behind place t is right as far as depth 0 is at t, depth 1 at t + 1, and so on; a token
that the head does not know is never guessed.

    python -m training.measure.head_acceptance BASE HEAD --json FILE

HEAD is the checkpoint of its run, or the folder that it was exported to. JSON: {"base", "head",
"precision", "cpu_s", "figures": ACCEPTANCE, "date", "kinds": {KIND: BY_POSITION}}: figures are of
code, kinds those of kinds_of_text.py, where a place behind the end of an answer does not count.
"""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from training.data.tokenizer import END_OF_TEXT_ID, TURN_END_ID
from training.measure.acceptance import (
    CONTINUED_TOKENS,
    MAX_DRAFTED,
    Acceptance,
    arguments_of,
    held_out_prefixes,
    report,
    summed,
)
from training.measure.kinds_of_text import prefixes_by_kind
from training.measure.predictor import ModulePredictor, continued, open_predictor
from training.models.config import read_note
from training.models.head_config import HeadConfig
from training.models.head_model import Head, features_of
from training.models.heads import make_head, read_head

# The head's logits of so many, at MAX_DRAFTED depths, of 2,048 tokens and 320 places each, take
# 0.2 GB.
PREFIXES_AT_ONCE = 10
# Of a kind of text: later proposals are seldom made.
POSITIONS = 4


@dataclass(frozen=True)
class ByPosition:
    """How far proposals are right, over every place of the continuations of `n_prefixes`."""

    n_prefixes: int
    n_places: int
    """Places with room for all proposals within what counts."""
    shares: tuple[float, ...]
    """Of these places, where the first proposal is right, the first two, and so on."""


class HeadGuesses:
    """A head in float32 beside the base whose features it reads."""

    def __init__(self, head: Head, base: ModulePredictor, token_ids: Tensor) -> None:
        self.head = head.eval().requires_grad_(False)
        self.base, self.token_ids = base, token_ids

    def guesses(self, ids: Tensor, depths: int) -> Tensor:
        """int64 [B, depths, T - 1]: the likeliest token behind each of `ids` [B, T] but the first.

        At depth n the base's features end n tokens before the last token that is known.
        """
        layers = self.head.config.feature_layers
        with torch.no_grad(), self.base.precision():
            features, _ = features_of(self.base.model, ids, layers)
            embedded = self.base.model.model.embed_tokens(ids[:, 1:])
        with torch.no_grad():
            logits = self.head(embedded.float(), features[:, :-1].float(), depths)
        return torch.stack([self.token_ids[found.argmax(dim=-1)] for found in logits], dim=1)


def open_head(path: Path, base: ModulePredictor) -> HeadGuesses:
    """The head of a training checkpoint (a file) or of the folder of an export.

    Raises ValueError for a checkpoint of something else, and of the head of another base.
    """
    weights = path / "model.safetensors" if path.is_dir() else path
    note = read_note(weights)["model"]
    if "head" not in note:
        raise ValueError(f"{path.name} is not of a head: give what training.head made")
    if note["base"] != (shape := asdict(base.model.config)):
        raise ValueError(
            f"{path.name} is the head of a base of shape {note['base']}, this base has {shape}: "
            "give the base that it was trained with"
        )
    head = make_head(HeadConfig.of_note(note["head"]), base.model, note["token_ids"])
    head.load_state_dict(read_head(weights))
    return HeadGuesses(head, base, torch.tensor(note["token_ids"]))


def right_in_a_row(agreed: Tensor) -> Tensor:
    """int64 [B, N]: how many proposals made at each place are right before the first wrong one.

    agreed: bool [B, D, N], where at depth d the guess of each of N tokens is the base's. Proposals
    past the end count as wrong.
    """
    _, depths, n_tokens = agreed.shape
    right = torch.zeros_like(agreed[:, 0], dtype=torch.int64)
    still = torch.ones_like(agreed[:, 0])
    for depth in range(min(depths, n_tokens)):
        still = still.clone()
        still[:, : n_tokens - depth] &= agreed[:, depth, depth:]
        still[:, n_tokens - depth :] = False
        right += still
    return right


def agreements(
    head: HeadGuesses, prefixes: Tensor, n_tokens: int, max_drafted: int
) -> tuple[Tensor, Tensor]:
    """The base's continuation int64 [B, N] of `prefixes` [B, P], and bool [B, D, N]: where the
    guess at depth d is it.

    Raises ValueError when P is less than 2.
    """
    if prefixes.shape[1] < 2:
        raise ValueError(
            f"prefixes have {prefixes.shape[1]} tokens: a head needs the features of one and "
            "another behind it, give at least 2"
        )
    continuations, found = [], []
    for some in prefixes.split(PREFIXES_AT_ONCE):
        following = continued(head.base, some, n_tokens)
        ids = torch.cat((some, following), dim=1)
        guesses = head.guesses(ids[:, :-1], max_drafted)[..., -n_tokens:]
        continuations.append(following)
        found.append(guesses == following[:, None])
    return torch.cat(continuations), torch.cat(found)


def head_acceptance(
    head: HeadGuesses,
    prefixes: Tensor,
    n_tokens: int = CONTINUED_TOKENS,
    max_drafted: int = MAX_DRAFTED,
) -> Acceptance:
    """Measure `head` against its base behind `prefixes` [B, P].

    Raises ValueError when max_drafted is more than n_tokens, or P less than 2.
    """
    _, agreed = agreements(head, prefixes, n_tokens, max_drafted)
    rows = right_in_a_row(agreed).tolist()
    return summed(agreed[:, 0], rows, prefixes.shape[1], max_drafted)


def by_position(following: Tensor, agreed: Tensor) -> ByPosition | None:
    """How far proposals are right in the continuations int64 [B, N], up to and with their ends.

    agreed: bool [B, D, N]. None where no place has room for D proposals.
    """
    _, depths, n_tokens = agreed.shape
    ends = (following == TURN_END_ID) | (following == END_OF_TEXT_ID)
    # A place counts while no end is before the last proposal made there.
    begun = F.pad(ends.cumsum(dim=1)[:, :-1], (1, 0))
    room = torch.zeros_like(ends)
    room[:, : n_tokens - depths + 1] = begun[:, depths - 1 :] == 0
    if not (n_places := int(room.sum())):
        return None
    right = right_in_a_row(agreed)[room]
    shares = tuple(float((right > depth).double().mean()) for depth in range(depths))
    return ByPosition(len(following), n_places, shares)


def main() -> None:
    arguments = arguments_of("head", "Measure a head against its base.").parse_args()
    torch.set_num_threads(arguments.threads)
    base = open_predictor(arguments.base, bfloat16=arguments.bfloat16)
    head = open_head(arguments.head, base)
    prefixes = held_out_prefixes(arguments.data, arguments.prefixes)
    started_s = time.process_time()
    found = head_acceptance(head, prefixes)
    report(
        found,
        arguments.json,
        time.process_time() - started_s,
        "base bfloat16, head and logits float32" if arguments.bfloat16 else "float32",
        base=arguments.base,
        head=arguments.head,
    )
    kinds = {}
    for kind, some in prefixes_by_kind(arguments.data, arguments.prefixes).items():
        figures = by_position(*agreements(head, some, CONTINUED_TOKENS, POSITIONS))
        if figures is None:
            continue
        kinds[kind] = figures
        shares = ", ".join(f"{share:.1%}" for share in figures.shares)
        print(f"{kind}: right up to each position {shares}")
    if arguments.json is not None:
        contents = json.loads(arguments.json.read_text())
        contents["date"] = datetime.date.today().isoformat()
        contents["kinds"] = {kind: asdict(figures) for kind, figures in kinds.items()}
        arguments.json.write_text(json.dumps(contents, indent=1) + "\n")


if __name__ == "__main__":
    main()
