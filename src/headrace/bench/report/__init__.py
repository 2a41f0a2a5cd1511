"""What people and programs read of a run: tables, files, and a page that needs no network."""
