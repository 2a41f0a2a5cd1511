"""Kernels of our own in Triton, for what no library does: products with stored kinds at their width
in the file, experts of a batch at once, attention over our pages, and what lies between.

They are written for Triton 3.6 to 3.9 and run where it is installed and the device is one of its
own; elsewhere the same is computed by PyTorch's operations. With TRITON_INTERPRET=1 they run on a
processor, which is how they are tested.
"""
