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


def in_a_row(agreed: Sequence[bool]) -> list[int]:
    """How many tokens agree from each place on before the first that does not."""
    found = [0] * (len(agreed) + 1)
    for place in reversed(range(len(agreed))):
        found[place] = found[place + 1] + 1 if agreed[place] else 0
    return found[:-1]


def drafted(rows: Sequence[Sequence[int]], n_drafted: int) -> Drafting:
    """Passes of drafting along each continuation, as many as fit whole.

    A row of `rows` is one continuation: at each place, how many proposals made there are right
    before the first that is not.
    """
    accepted, n_passes = 0, 0
    for right in rows:
        place = 0
        while place + n_drafted <= len(right):
            taken = min(right[place], n_drafted)
            accepted, n_passes = accepted + taken, n_passes + 1
            # The pass that refuses a proposal, or takes all of them, gives one token more.
            place += taken + 1
    return Drafting(n_drafted, accepted / n_passes, n_passes)


def summed(
    first: Tensor, rows: Sequence[Sequence[int]], prefix_tokens: int, max_drafted: int
) -> Acceptance:
    """The figures of `first` bool [B, N], where the first guess is the base's token, and `rows`,
    as `drafted` takes them.

    Raises ValueError when max_drafted is more than N.
    """
    n, n_tokens = first.shape
    if max_drafted > n_tokens:
        raise ValueError(f"max_drafted is {max_drafted}, n_tokens {n_tokens}: give at most that")
    shares = first.double().mean(dim=1)
    return Acceptance(
        n_prefixes=n,
        prefix_tokens=prefix_tokens,
        continued_tokens=n_tokens,
        alpha=float(shares.mean()),
        alpha_error=float(shares.std()) / math.sqrt(n) if n > 1 else None,
        drafting=tuple(drafted(rows, k) for k in range(1, max_drafted + 1)),
    )


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
    agreed = agreements(draft, base, prefixes, n_tokens)
    rows = [in_a_row(line) for line in agreed.tolist()]
    return summed(agreed, rows, prefixes.shape[1], max_drafted)


def arguments_of(guesser: str, description: str) -> argparse.ArgumentParser:
    """The options of a measure of `guesser` ("draft") beside a base."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("base", type=Path, help="checkpoint file or Hugging Face folder")
    parser.add_argument(guesser, type=Path, help=f"the same of the {guesser}")
    parser.add_argument("--data", type=Path, default=Path("build/train"))
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--prefixes", type=int, default=PREFIXES)
    parser.add_argument("--bfloat16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--threads", type=int, default=1)
    return parser


def held_out_prefixes(data: Path, n_prefixes: int) -> Tensor:
    """int64 [n_prefixes, PREFIX_TOKENS] of the held-out Python files below `data`."""
    tokenizer = Tokenizer.from_file(str(data / "tokenizer" / "tokenizer.json"))
    documents = [
        [END_OF_TEXT_ID, *tokenizer.encode(document.text).ids]
        for document in read_held_out(data / "corpus")
        if document.path.endswith(".py")
    ]
    return draw_prefixes(documents, n_prefixes, PREFIX_TOKENS)


def report(
    found: Acceptance, out: Path | None, cpu_s: float, precision: str, **models: Path
) -> None:
    """Print what was found and, where `out` is named, write it as JSON with the `models`."""
    error = "" if found.alpha_error is None else f" ± {found.alpha_error:.1%}"
    print(f"{found.n_prefixes} prefixes: alpha {found.alpha:.1%}{error}")
    for drafting in found.drafting:
        print(
            f"{drafting.n_drafted} drafted: {drafting.accepted:.2f} accepted "
            f"({drafting.n_passes} passes)"
        )
    if out is not None:
        contents = {
            **{name: str(path) for name, path in models.items()},
            "precision": precision,
            "cpu_s": cpu_s,
            "figures": asdict(found),
        }
        out.write_text(json.dumps(contents, indent=1) + "\n")


def main() -> None:
    arguments = arguments_of("draft", "Measure a draft against a base.").parse_args()
    torch.set_num_threads(arguments.threads)
    base, draft = (
        open_predictor(path, bfloat16=arguments.bfloat16)
        for path in (arguments.base, arguments.draft)
    )
    prefixes = held_out_prefixes(arguments.data, arguments.prefixes)
    started_s = time.process_time()
    found = acceptance(draft, base, prefixes)
    report(
        found,
        arguments.json,
        time.process_time() - started_s,
        "bfloat16, logits float32" if arguments.bfloat16 else "float32",
        base=arguments.base,
        draft=arguments.draft,
    )


if __name__ == "__main__":
    main()
