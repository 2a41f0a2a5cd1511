"""Checkpoints with fewer experts or fewer layers, as views of the tensors they had."""
