"""Replies that were given before, sent again for the same request."""
