"""What keeps providers from reading the beginning of a prompt from their caches."""
