"""Places where models are served, and how each has been doing."""
