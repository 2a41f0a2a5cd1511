"""Scores that users give to answers, stored in the ledger's file and reported by model and "
"variant."""
