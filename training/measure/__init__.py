"""Every figure of a model card, and checks of an export."""
