"""Names as users write them: `os.path.join` and not `posixpath.join`.

A package exports by importing into its `__init__`; of all the modules that have a name in that way,
users write the one with the fewest dots. Knows nothing of what the names stand for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from training.turns.tables import words

# (module, name or "*" for all): the modules that import it from there.
Exports = Mapping[tuple[str, str], set[str]]
# Modules of the standard library that stand behind another name.
ALIASES = {
    "posixpath": "os.path",
    "genericpath": "os.path",
    "_collections_abc": "collections.abc",
    "_pyio": "io",
    "_bootlocale": "locale",
    "xml.etree.ElementTree": "xml.etree.ElementTree",
    "importlib._bootstrap_external": "importlib.machinery",
}
# Parts of the standard library that nobody imports: their code is worth completing, no more.
UNASKED = frozenset(words("unasked"))


def is_public(dotted: str) -> bool:
    return not any(
        part.startswith("_") or part in ("tests", "test", "src", "legacy")
        for part in dotted.split(".")
    )


def exports_of(tree: ast.Module, module: str) -> Iterator[tuple[str, str, str]]:
    """What a package's __init__ imports from itself: (module, name or "*", name it is given)."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = module.split(".")[: len(module.split(".")) - node.level + 1] if node.level else []
        target = ".".join([*base, *([node.module] if node.module else [])])
        if target.split(".")[0].lstrip("_") == module.split(".")[0].lstrip("_"):
            for alias in node.names:
                yield target, alias.name, alias.asname or alias.name


def public_module(module: str, name: str, exported: Exports) -> str:
    """The module that users import `name` from, which is defined in `module`."""
    if module in ALIASES:
        return ALIASES[module]
    found, todo = {module}, [module]
    while todo and not name.startswith("_"):
        here = todo.pop()
        others = exported.get((here, name), set()) | exported.get((here, "*"), set())
        todo += others - found
        found |= others
    public = [other for other in found if is_public(other)]
    return min(public, key=lambda other: (other.count("."), len(other), other), default=module)
