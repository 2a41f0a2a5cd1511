"""Responses that are kept, so that later requests can name them instead of repeating them."""
