"""HTML and SVG that cannot be broken out of: every text that is not markup is escaped.

A page shows model names, error messages and commands that others wrote. `tag` is the only way in
which this package makes elements; it escapes attributes and children, and leaves alone only what is
already a `Markup`. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

Attribute = str | float | int | None


class Markup(str):
    """Text that is safe to stand in a page as it is."""

    __slots__ = ()


def text(content: str) -> Markup:
    """Of any text."""
    return Markup(escape(content, quote=True))


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Parts one after the other; those that are not markup are escaped."""
    return Markup(escape(between).join(_safe(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """One element.

    Attributes that are None are left out; `class_` is `class`, other underscores are hyphens;
    floats have one digit after the point, which is a tenth of a pixel.
    """
    words = "".join(
        f' {_attribute_name(key)}="{escape(_value(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children and name in _EMPTY:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{''.join(_safe(child) for child in children)}</{name}>")


_EMPTY = frozenset({"line", "rect", "circle", "path", "polyline", "polygon", "meta", "br", "use"})


def _safe(part: str) -> str:
    return part if isinstance(part, Markup) else escape(part, quote=True)


def _attribute_name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float | int) -> str:
    return shortest(value) if isinstance(value, float) else str(value)


def shortest(value: float) -> str:
    """A length or place in a plot: a tenth of a pixel, without a tenth of 0."""
    written = f"{value:.1f}"
    return written[:-2] if written.endswith(".0") else written
