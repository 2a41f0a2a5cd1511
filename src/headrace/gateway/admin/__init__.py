"""The admin API and page, on a port of their own."""
