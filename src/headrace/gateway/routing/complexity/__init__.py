"""Which model a request is hard enough for."""
