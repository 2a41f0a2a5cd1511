"""Text that may be anything up to a mark, as rules that cost almost nothing for each token.

A mark that is a control token ends free text by itself, since no text has it. Other marks are
found in the text: free text is then made of runs without the first character of any mark, and of
beginnings of marks that go on in another way. Both are the longest match at their place, so that a
mark that is written out is always read as the mark.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.structured.composition import Composition, expression, slashed

ANYTHING = r"/(.|\n)*/"
SPACE = r"/[ \t\r\n]{0,4}/"
"""Between the parts of an answer, where models write it as they like."""


def repeats_its_start(marks: Sequence[str]) -> bool:
    """Whether the first character of a mark is within one, so that free text cannot be cut so."""
    firsts = {mark[0] for mark in marks}
    return any(character in firsts for mark in marks for character in mark[1:])


def free_text(rules: Composition, marks: Sequence[str]) -> str:
    """A rule for text, possibly none, that has none of the marks in it. ValueError for marks of
    which one `repeats_its_start`."""
    written = sorted({mark for mark in marks if not rules.is_special(mark)})
    if not written:
        return rules.rule(ANYTHING)
    if repeats_its_start(written):
        raise ValueError(f"{written}: a mark has the first character of one again")
    firsts = "".join(sorted({mark[0] for mark in written}))
    run = rules.rule(slashed(f"[^{_in_class(firsts)}]+"), terminal=True)
    begun = {mark[:length] for mark in written for length in range(1, len(mark))}
    # A mark that begins another one is a mark wherever it stands.
    begun = {each for each in begun if not any(each.startswith(mark) for mark in written)}
    others = [run]
    if begun:
        starts = "|".join(map(expression, sorted(begun, key=len, reverse=True)))
        others.append(rules.rule(slashed(starts), terminal=True))
    return rules.rule(f"({' | '.join(others)})*")


def _in_class(characters: str) -> str:
    return "".join(f"\\{each}" if each in "\\]^-[&~" else each for each in characters)
