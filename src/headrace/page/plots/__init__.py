"""Plots as inline SVG: the frame, its scales and how many points are drawn; no library."""
