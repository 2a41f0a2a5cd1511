"""What administrators see and do: an API and a page, on a port of their own."""
