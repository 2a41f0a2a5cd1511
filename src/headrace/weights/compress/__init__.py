"""Folders of Hugging Face's layouts, quantised by llm-compressor in a process of its own.

`formats` has the layouts by name, `make` goes from a folder to a smaller one, `library` starts the
process, and `worker` is what runs there. Nothing here but `worker` imports PyTorch.
"""
