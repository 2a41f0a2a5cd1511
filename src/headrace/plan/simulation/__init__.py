"""Requests over time on replicas that run the engine's own scheduler."""
