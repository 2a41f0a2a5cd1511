"""Logged requests sent once more, to other models, and what came beside what came then."""
