"""A trial of a stranger's tokenizer on texts that make bad expressions explode.

An expression may take time that grows without measure with the text, or give up (the library then
panics). Such a file is refused when it is loaded, not with each prompt. Runs of characters are what
expressions backtrack over; each is doubled until it is long or takes too long, so the trial of a
file that takes cubic time ends as soon as that of others. Expressions that need another text to
explode pass, and that text is an error of the request.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.errors import CheckpointError, RequestError, shown
from headrace.text.library import encoding
from headrace.weights.tokenizer.pretokenizers import PRETOKENIZERS
from headrace.weights.tokenizer.tokenizer_json import TokenizerJson

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

MAX_TRIAL_S = 0.5
"""CPU time that 4,096 characters may take. Real tokenizers take a few milliseconds."""

_FIRST_CHARS = 64
_MAX_CHARS = 4096
# Normalized text of a trial; see `growth`.
_MAX_BYTES = 1 << 18
# White space, letters of both cases, digits, a mark, punctuation, ideographs, pairs of them.
_UNITS = (" ", "\n", "a", "A", "1", "\u0301", "!", "\u4e2d", " a", "aA", "a1")
# What makes an expression fail after a run it has matched.
_ENDS = ("x", "!")
_MAX_OWN_UNITS = 12
_MAX_NEEDED_CHARS = 256
# Those of real models, by which our own texts are split as well.
_KNOWN = frozenset(pattern for rule in PRETOKENIZERS.values() for pattern in rule.patterns)


def try_out(backend: Backend, file: TokenizerJson, source: str) -> None:
    """Raise CheckpointError where the tokenizer panics on a plain text or takes too long for it.

    file: what it was made of; the characters its expressions name are tried as well.
    source: what the message calls the file.
    """
    patterns = list(_patterns(file))
    # Expressions that need a character are not even tried on texts without it.
    needed = "".join(dict.fromkeys("".join(patterns)))[:_MAX_NEEDED_CHARS]
    most_chars = min(_MAX_CHARS, max(1, _MAX_BYTES // file.growth))
    strange = [pattern for pattern in patterns if pattern not in _KNOWN]
    for unit in (*_UNITS, *_own_units(strange)):
        for end in _ENDS:
            num_chars = min(_FIRST_CHARS, most_chars)
            while num_chars <= most_chars:
                _try_text(backend, unit * (num_chars // len(unit)) + end + needed, source)
                num_chars *= 2


def _try_text(backend: Backend, text: str, source: str) -> None:
    begun_s = time.thread_time()
    try:
        with encoding(text):
            backend.encode(text, add_special_tokens=False)
    except RequestError as error:
        # That a vocabulary lacks a character is no fault of the file.
        if isinstance(error.__cause__, Exception):
            return
        raise CheckpointError(
            f"{source} is not a usable tokenizer: it fails on {_described(text)}: {error.__cause__}"
        ) from error
    took_s = time.thread_time() - begun_s
    if took_s > MAX_TRIAL_S:
        raise CheckpointError(
            f"{source} is not a usable tokenizer: {_described(text)} take it {took_s:.1f} s of CPU "
            f"time; the limit is {MAX_TRIAL_S} s. One of its expressions takes time out of all "
            "proportion to the text"
        )


def _described(text: str) -> str:
    return f"{len(text)} characters ({shown(text[:16])} and so on)"


def _own_units(patterns: Sequence[str]) -> Iterator[str]:
    """Characters that the expressions name, and pairs of neighbours."""
    seen: set[str] = set(_UNITS)
    for pattern in patterns:
        letters = [char for char in pattern if char.isalnum() or char.isspace() or char in "<>@#_"]
        pairs = [first + second for first, second in pairwise(letters)]
        for unit in (*letters, *pairs):
            if unit not in seen:
                seen.add(unit)
                yield unit
            if len(seen) >= len(_UNITS) + _MAX_OWN_UNITS:
                return


def _patterns(file: TokenizerJson) -> Iterator[str]:
    waiting = [file.content.get("normalizer"), file.content.get("pre_tokenizer")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            pattern = part.get("pattern")
            if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
                yield pattern["Regex"]
            waiting.extend(part.values())
