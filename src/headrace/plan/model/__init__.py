"""The shape of a model, from a config, a checkpoint's declared layers or the catalog."""
