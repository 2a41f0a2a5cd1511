"""Wire formats of chat APIs, each in a folder of its own, read into and written from `neutral`."""
