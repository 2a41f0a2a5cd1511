"""Replies, whole and streamed, and errors: read from providers, written for clients."""
