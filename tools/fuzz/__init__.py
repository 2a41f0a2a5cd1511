"""Fuzzers of what reads files and texts from strangers; run them as modules, see `harness`."""
