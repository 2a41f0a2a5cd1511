"""Blocks of the KV cache: who owns which, what a prefix shares, what the kernels are handed."""
