"""Catalog folders that tests write."""

from __future__ import annotations

from pathlib import Path

from headrace.catalog import Catalog

SOURCE = '[[source]]\nid = "mine"\ntitle = "My own bench"\ndate = 2026-03-01\n'
DEFAULTS = '[defaults]\nsource = "mine"\nas_of = 2026-03-01\nconfidence = "high"\n'


def folder(path: Path, text: str, *, head: str = DEFAULTS + SOURCE) -> Path:
    """A folder with one file."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "mine.toml").write_text(head + text, encoding="utf-8")
    return path


def catalog(path: Path, text: str, *, head: str = DEFAULTS + SOURCE) -> Catalog:
    """What ships with one file of a test's own on top."""
    return Catalog.load([folder(path, text, head=head)])
