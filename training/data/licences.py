"""Which licences let a package into the corpus, read from its installed metadata.

Permissive means that copies and derived works ask for no more than a notice. What a package says
is taken from `License-Expression` (SPDX), else its classifiers, else the first line of `License`;
a package that says nothing, or names anything outside the list, stays out.
"""

from __future__ import annotations

import re
from email.message import Message

# SPDX identifiers. Python-2.0 and PSF-2.0 are CPython's own; HPND and MIT-CMU are Pillow's.
PERMISSIVE = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "HPND",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
        "Zlib",
        "ZPL-2.1",
    }
)

# Words of classifiers and free-form `License` fields, in the order in which they are tried.
_WORDS = (
    (re.compile(r"GPL|GNU|MPL|Mozilla|Eclipse|EPL|CDDL|Creative Commons|proprietary", re.I), None),
    (re.compile(r"apache", re.I), "Apache-2.0"),
    (re.compile(r"zope|ZPL", re.I), "ZPL-2.1"),
    (re.compile(r"python software foundation|PSF", re.I), "PSF-2.0"),
    (re.compile(r"MIT-CMU|HPND", re.I), "MIT-CMU"),
    (re.compile(r"\bMIT\b", re.I), "MIT"),
    (re.compile(r"2-clause", re.I), "BSD-2-Clause"),
    (re.compile(r"3-clause|new bsd|modified bsd", re.I), "BSD-3-Clause"),
    # Of two or three clauses: that classifier does not say.
    (re.compile(r"BSD", re.I), "BSD"),
    (re.compile(r"\bISC\b", re.I), "ISC"),
    (re.compile(r"unlicense", re.I), "Unlicense"),
)


def permissive_expression(expression: str) -> bool:
    """Whether an SPDX expression can be met by permissive licences alone.

    OR offers a choice, AND asks for all; exceptions (WITH) are read as their base licence.
    """
    plain = re.sub(r"\s+WITH\s+\S+", "", expression.replace("(", " ").replace(")", " "))
    return any(
        all(part.strip() in PERMISSIVE for part in re.split(r"\s+AND\s+", choice))
        for choice in re.split(r"\s+OR\s+", plain)
    )


def permissive_licence(metadata: Message) -> str | None:
    """The licence to record for a package, or None when it may not be used."""
    expression = str(metadata.get("License-Expression") or "").strip()
    if expression:
        return expression if permissive_expression(expression) else None
    classifiers = [str(c) for c in metadata.get_all("Classifier") or []]
    said = [c.rpartition("::")[2].strip() for c in classifiers if c.startswith("License ::")]
    said = [text for text in said if text != "OSI Approved"]
    if not said:
        said = str(metadata.get("License") or "").strip().splitlines()[:1]
    names = {_named(text) for text in said}
    return None if not names or None in names else " AND ".join(sorted(str(n) for n in names))


def _named(text: str) -> str | None:
    return next((name for words, name in _WORDS if words.search(text)), None)
