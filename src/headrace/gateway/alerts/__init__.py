"""Alerts: events that people should know at once, logged and sent to a configured webhook."""
