"""Ways to be known that need more than a key: tokens that are renewed, signatures."""
