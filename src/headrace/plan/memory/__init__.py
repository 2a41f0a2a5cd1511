"""What fits: weights, KV cache and activations against the memory of devices."""
