"""Safetensors files: read and written."""
