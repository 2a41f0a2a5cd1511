"""Chooses a model by how hard a request is."""
