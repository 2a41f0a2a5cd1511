"""Drafts of a smaller model, and whether its tokens are the same."""
