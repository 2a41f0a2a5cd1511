"""What every request of a workload has in common, beside its prompt.

How long an answer is to be is a wish unless something enforces it: `ignore_eos` and `min_tokens`
do, where the endpoint takes them, and a run without them must report the lengths that came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.bench.client.prompt import Prompt


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that every request of a run has."""

    ignore_eos: bool = False
    """Do not end before the requested length."""
    min_tokens: bool = False
    """Ask for the length as the least, too."""
    stream: bool = True
    extra_body: dict[str, Any] = {}
    """Fields of the body of every request."""

    @property
    def forces_length(self) -> bool:
        """Whether anything but the limit makes the answer as long as is asked."""
        return self.ignore_eos or self.min_tokens

    def prompt(
        self, output_tokens: int | None, *, extra_body: Mapping[str, Any] | None = None, **what: Any
    ) -> Prompt:
        """A prompt with these options; `what` is its text, token_ids, messages or inputs.

        Texts to embed have no answer: what concerns its length is left away.
        """
        if "inputs" in what:
            output_tokens = None
        return Prompt(
            **what,
            max_tokens=output_tokens,
            min_tokens=output_tokens if self.min_tokens else None,
            ignore_eos=self.ignore_eos and output_tokens is not None,
            stream=self.stream and "inputs" not in what,
            extra_body={**self.extra_body, **(extra_body or {})},
        )


NO_OPTIONS = RequestOptions()
