"""Answers for questions of the same meaning, by vectors of the user's last message."""
