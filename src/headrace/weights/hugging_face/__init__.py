"""Folders as Hugging Face has them."""
