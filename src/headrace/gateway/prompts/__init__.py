"""Prompt templates of the file: versions, labels, and what a request makes of them."""
