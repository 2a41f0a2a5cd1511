"""The native module of guesses that are looked up, as native/lookup/module.cpp binds it."""

from collections.abc import Sequence

class Text:
    """The text of one request; see prompt_lookup.py."""

    def __init__(self, lengths: Sequence[int], most_match: int) -> None:
        """lengths: of matches that are sought, ascending, 1 or more. most_match: tokens of a match
        that are counted. ValueError for others."""

    def __len__(self) -> int:
        """Tokens that were read."""

    def guess(self, added: Sequence[int], most: int) -> tuple[list[int], int]:
        """Read further tokens; what follows the last ones, at most so many, and how many of them
        are the same there. Nothing and 0 where they did not come before."""

class SuffixAutomaton:
    """The pieces of the texts that were added; see past_answers.py."""

    def begin(self) -> None:
        """What is added from now on is another text."""

    def add(self, token_ids: Sequence[int]) -> None:
        """Add tokens to the end of the text that was begun last."""

class Reader:
    """The place of another text in an automaton: the longest of its ends that is in there. It stays
    a place where texts are added meanwhile, and is the longest again when it has read as many
    tokens as that has."""

    def __init__(self, automaton: SuffixAutomaton) -> None: ...
    @property
    def match_tokens(self) -> int:
        """Of the end."""

    def read(self, token_ids: Sequence[int]) -> None:
        """Go on with tokens."""

    def guess(self, least_match: int, most: int) -> tuple[list[int], int]:
        """What follows the longest end that anything follows, and how long that is: at each place
        the token that most texts go on with; of equals the one that came last, then the lower id.
        Nothing where that end is shorter than least_match."""
