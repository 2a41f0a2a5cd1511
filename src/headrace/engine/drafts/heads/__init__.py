"""Drafts of heads that read what the target computed."""
