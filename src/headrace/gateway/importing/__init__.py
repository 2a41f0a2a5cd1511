"""Files of other gateways, read into ours."""
