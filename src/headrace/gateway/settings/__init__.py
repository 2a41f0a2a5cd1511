"""The gateway's one file: what may stand in it, and reading it."""
