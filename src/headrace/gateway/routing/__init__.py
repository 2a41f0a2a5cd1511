"""Chooses the target that is tried first, and those that follow, with the reasons."""
