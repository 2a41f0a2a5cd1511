"""Answers that were given before, given again to the same request."""
