"""The models in plain PyTorch, and their shapes."""
