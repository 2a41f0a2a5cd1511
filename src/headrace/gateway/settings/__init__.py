"""The gateway's one file: its settings, and reading it."""
