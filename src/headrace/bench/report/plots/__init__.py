"""Plots as inline SVG: small pure functions from numbers to markup, without a library."""
