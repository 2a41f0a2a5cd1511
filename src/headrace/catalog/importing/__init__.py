"""Prices from other people's tables, as rows of a user's own file."""
