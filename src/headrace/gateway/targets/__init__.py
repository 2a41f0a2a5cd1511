"""Places where models are served, and how each is doing."""
