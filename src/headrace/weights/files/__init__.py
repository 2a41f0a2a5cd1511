"""Small files and paths, and files mapped into memory."""
