"""Plots of the programs here as SVG files that stand alone, for pages of the docs."""

from __future__ import annotations

from headrace.page.plots.frame import Plot

# Of the page's variables those that plots here use, and its rules: an SVG file stands alone.
_STYLE = (
    "svg{background:#fff;font:11px sans-serif}text{fill:#55554f}.title{text-anchor:middle}"
    ".grid{stroke:#e7e6e1;fill:none}.axis{stroke:#c9c8c1;fill:none}"
    ".curve{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".limit{stroke:#55554f;stroke-dasharray:5 4}.note{fill:#14140f;font-weight:600}"
    "svg{--c1:#eb6834;--c2:#2a78d6;--c3:#2f9e5b}"
)


def standalone(plot: Plot) -> str:
    """The plot as an SVG file."""
    head, _, rest = str(plot.svg).partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>{rest}\n'
