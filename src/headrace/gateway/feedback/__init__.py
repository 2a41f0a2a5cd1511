"""Scores that users of answers give, kept beside the ledger and reported by model and variant."""
