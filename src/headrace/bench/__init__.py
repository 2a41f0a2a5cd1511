"""Measuring: what a machine can do, and what the engine makes of it."""
