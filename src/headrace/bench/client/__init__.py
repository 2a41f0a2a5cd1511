"""The client of load runs: sends requests, notes when each byte came, and says what went wrong."""
