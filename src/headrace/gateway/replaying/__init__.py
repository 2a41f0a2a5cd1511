"""Logged requests sent again, to other models, with both answers side by side."""
