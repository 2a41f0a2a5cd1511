"""Half a day of traffic through the gateway in minutes; see `__main__`."""
