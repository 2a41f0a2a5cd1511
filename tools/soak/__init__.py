"""A server under everything at once, for as long as one likes: `python -m tools.soak --help`."""
