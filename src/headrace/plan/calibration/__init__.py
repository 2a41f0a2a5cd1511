"""Rates of a machine fitted to measurements of its engine, and plans made with them."""
