"""Recorded replies of real providers, played back through a whole gateway."""
