"""Requests: read from clients, written for providers, and what both of them use."""
