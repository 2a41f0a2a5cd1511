"""Drafts of a smaller model: it, its own cache, and when it pays."""
