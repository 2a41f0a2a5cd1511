"""One request: from a client's bytes to a provider's answer and the bill."""
