"""Tensors as files hold them: views of rows, whole, in pieces, or put together of several tensors."""
