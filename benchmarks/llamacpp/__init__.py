"""llama.cpp as a peer: built from a source package of the index, run as its own programs."""
