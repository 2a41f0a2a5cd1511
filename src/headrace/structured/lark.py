"""What of llguidance's dialect of Lark a client may write.

Schemas within a grammar (`%json`) would pass no walk, and options (`%llguidance {...}`) could allow
answers that are not text; both are refused. Files are never read: llguidance knows no such import.
"""

from __future__ import annotations

import re

from headrace.errors import RequestError

LITERAL = re.compile(
    r"""(?:\#|//)[^\n]*                                     # a comment
    |"(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})|[^"\\\x00-\x1f\x7f])*"
    |/(?:\\.|[^/\\])+/[imslux]*
    |<[^<>\s]+>""",
    re.VERBOSE,
)
"""Where text looks like a directive and is not, exactly as llguidance cuts a text into tokens."""
_DIRECTIVE = re.compile(r"%(?!(?:ignore|import)\b)\s*(\w*)(\s*\{\s*\})?")


def checked_lark(text: str, param: str) -> str:
    """The text as it is. Raises RequestError naming a directive that is not accepted."""
    for name, nothing in _DIRECTIVE.findall(LITERAL.sub(" ", text)):
        if name == "llguidance" and nothing:
            continue
        raise RequestError(
            f"{param} has %{name or ' '}, which is not accepted in a grammar; accepted are %ignore "
            "and %import of llguidance's own names. Give a JSON schema as one.",
            param=param,
            code="unsupported",
        )
    return text
