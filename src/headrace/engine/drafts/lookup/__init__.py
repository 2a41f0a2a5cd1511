"""Guesses that are looked up: in the request itself and in past answers."""
