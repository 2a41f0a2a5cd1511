"""What the adapters learn, and how a style is measured."""
