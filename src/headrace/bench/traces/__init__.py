"""Recordings of who asked how much when, and prompts made to their lengths."""
