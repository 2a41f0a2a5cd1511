"""Several processes that serve on one port, and the parent that holds what they share.

The parent serves no requests: it starts the workers, replaces those that die, and holds counters,
ledger and figures, so that these survive any worker. Each worker reaches it over a socket pair.
"""
