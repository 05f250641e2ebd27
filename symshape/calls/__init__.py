"""What a call is: its arguments as flat leaves with paths, the key that finds an entry, the policies for its sizes.

A call is read once. What must be equal (nesting, dtypes, devices, constants, torch's modes) is its structure; the
integers (sizes, strides, offsets, integer arguments) are what guards are about. Keys are made here and nowhere else.
"""
