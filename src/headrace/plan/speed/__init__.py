"""Tokens per second and latencies of a model on hardware, alone and in replicas."""
