"""Reading of calls: the arguments as flat leaves with paths, the key that finds an entry, the
policies for sizes.

A call is read once. The *structure* of a call must be equal: nesting, dtypes, devices, constants,
torch's modes. Guards are about the integers: sizes, strides, offsets, integer arguments. Keys of
calls are made in this folder and nowhere else.
"""
