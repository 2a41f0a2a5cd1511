"""What people look at: numbers as they are written, tables, plots, and a page that stands alone."""
