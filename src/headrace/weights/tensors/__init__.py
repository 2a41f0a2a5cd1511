"""Tensors as files hold them: whole, in pieces, or put together of several."""
