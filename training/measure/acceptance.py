"""How often a base takes what a draft proposes, when both are greedy, on held-out code.

Prefixes are cut from held-out Python files at even distances over all places where one fits, the
base continues each, and the draft is asked for every token of that continuation, given the prefix
and the base's own tokens before it. That one reading says all about drafting: a chain of proposals
that agrees with the base so far has the base's tokens before it, and one that does not is at its
end. So of k proposals made at a place as many are taken as there are agreements in a row, up to k.

    python -m training.measure.acceptance BASE DRAFT --json FILE

JSON: {"base", "draft", "precision", "cpu_s", "figures": ACCEPTANCE}, the class of that name below.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.data.tokenizer import END_OF_TEXT_ID
from training.measure.heldout_text import read_held_out
from training.measure.predictor import Predictor, continued, open_predictor

PREFIXES, PREFIX_TOKENS, CONTINUED_TOKENS = 200, 256, 64
MAX_DRAFTED = 8
# Prefixes read at a time: the logits of so many, of 320 tokens each, take 0.25 GB.
PREFIXES_AT_ONCE = 25


@dataclass(frozen=True)
class Drafting:
    """What drafting `n_drafted` tokens per pass of the base gives.

    `accepted` is the mean of draft tokens taken per pass, of 0 to `n_drafted`; a pass also gives
    one token of the base's own. `n_passes` were simulated, each within the continuations.
    """

    n_drafted: int
    accepted: float
    n_passes: int


@dataclass(frozen=True)
class Acceptance:
    """`alpha` is the share of the base's tokens that are the draft's first guess.

    `alpha_error` is its standard error over prefixes; None of a single one.
    """

    n_prefixes: int
    prefix_tokens: int
    continued_tokens: int
    alpha: float
    alpha_error: float | None
    drafting: tuple[Drafting, ...]


def draw_prefixes(documents: Sequence[Sequence[int]], n_prefixes: int, n_tokens: int) -> Tensor:
    """int64 [n_prefixes, n_tokens] from documents that begin with their separator.

    Raises ValueError when no document is as long as a prefix.
    """
    fitting = [ids for ids in documents if len(ids) >= n_tokens]
    if not fitting:
        raise ValueError(f"prefix_tokens is {n_tokens}: no document is as long, give fewer")
    places = [len(ids) - n_tokens + 1 for ids in fitting]
    found, passed, index = [], 0, 0
    for number in range(n_prefixes):
        place = int((number + 0.5) * sum(places) / n_prefixes)
        while place >= passed + places[index]:
            passed, index = passed + places[index], index + 1
        found.append(fitting[index][place - passed : place - passed + n_tokens])
    return torch.tensor(found)


def agreements(draft: Predictor, base: Predictor, prefixes: Tensor, n_tokens: int) -> Tensor:
    """bool [B, n_tokens]: where the draft's guess is the base's token."""
    found = []
    for first in range(0, len(prefixes), PREFIXES_AT_ONCE):
        some = prefixes[first : first + PREFIXES_AT_ONCE]
        following = continued(base, some, n_tokens)
        ids = torch.cat((some, following), dim=1)
        guesses = draft.logits(ids[:, :-1])[:, -n_tokens:].argmax(dim=-1)
        found.append(guesses == following)
    return torch.cat(found)


def drafted(agreed: Sequence[Sequence[bool]], n_drafted: int) -> Drafting:
    """Passes of drafting along each continuation, as many as fit whole."""
    accepted, n_passes = 0, 0
    for line in agreed:
        place = 0
        while place + n_drafted <= len(line):
            taken = 0
            while taken < n_drafted and line[place + taken]:
                taken += 1
            accepted, n_passes = accepted + taken, n_passes + 1
            # The pass that refuses a proposal, or takes all of them, gives one token more.
            place += taken + 1
    return Drafting(n_drafted, accepted / n_passes, n_passes)


def acceptance(
    draft: Predictor,
    base: Predictor,
    prefixes: Tensor,
    n_tokens: int = CONTINUED_TOKENS,
    max_drafted: int = MAX_DRAFTED,
) -> Acceptance:
    """Measure `draft` against `base` behind `prefixes` [B, P].

    Raises ValueError when max_drafted is more than n_tokens.
    """
    if max_drafted > n_tokens:
        raise ValueError(f"max_drafted is {max_drafted}, n_tokens {n_tokens}: give at most that")
    agreed = agreements(draft, base, prefixes, n_tokens)
    shares = agreed.double().mean(dim=1)
    n = len(shares)
    lines = agreed.tolist()
    return Acceptance(
        n_prefixes=n,
        prefix_tokens=prefixes.shape[1],
        continued_tokens=n_tokens,
        alpha=float(shares.mean()),
        alpha_error=float(shares.std()) / math.sqrt(n) if n > 1 else None,
        drafting=tuple(drafted(lines, k) for k in range(1, max_drafted + 1)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a draft against a base.")
    parser.add_argument("base", type=Path, help="checkpoint file or Hugging Face folder")
    parser.add_argument("draft", type=Path, help="the same of the draft")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--prefixes", type=int, default=PREFIXES)
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    base, draft = (
        open_predictor(path, bfloat16=arguments.bfloat16)
        for path in (arguments.base, arguments.draft)
    )
    tokenizer = Tokenizer.from_file(str(arguments.data / "tokenizer" / "tokenizer.json"))
    documents = [
        [END_OF_TEXT_ID, *tokenizer.encode(document.text).ids]
        for document in read_held_out(arguments.data / "corpus")
        if document.path.endswith(".py")
    ]
    started_s = time.process_time()
    prefixes = draw_prefixes(documents, arguments.prefixes, PREFIX_TOKENS)
    found = acceptance(draft, base, prefixes)
    error = "" if found.alpha_error is None else f" ± {found.alpha_error:.1%}"
    print(f"{found.n_prefixes} prefixes: alpha {found.alpha:.1%}{error}")
    for one in found.drafting:
        print(f"{one.n_drafted} drafted: {one.accepted:.2f} accepted ({one.n_passes} passes)")
    if arguments.json is not None:
        report = {
            "base": str(arguments.base),
            "draft": str(arguments.draft),
            "precision": "bfloat16, logits float32" if arguments.bfloat16 else "float32",
            "cpu_s": time.process_time() - started_s,
            "figures": asdict(found),
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
