"""Devices, their memory, and the machine at hand."""
