"""How the weights of a Hugging Face folder are stored, as its config states it.

`storage` has the values, `statement` reads them from a config in the words of the program that made
the folder, `module_names` matches the names of modules that such statements list, and `matrices`
puts tensors together as they are read.
"""
