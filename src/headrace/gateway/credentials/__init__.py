"""Authentication that needs more than a key: tokens that are renewed, signatures."""
