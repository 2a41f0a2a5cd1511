"""Vendors' own Python packages against a gateway on a real socket."""
