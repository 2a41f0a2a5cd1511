"""Finds what keeps providers from reading a prompt's beginning from their caches."""
