"""The model cards, rendered from measurements."""
