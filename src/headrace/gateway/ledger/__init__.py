"""What every request took, kept on disk, and what can be asked about it."""
