"""The tour of llama.cpp's server tests: which of them hold here, and why the others do not.

The tests come from the llama-cpp-python sdist and run unmodified; nothing of them is kept here.
Their server binary is replaced by `launcher`, which takes llama-server's command line, starts
`headrace serve` behind a Unix socket, and translates paths and field names (never behaviour).
"""
