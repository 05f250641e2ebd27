"""What is caught while a function is traced, before C++ or Python would turn a symbol into a plain number.

Torch functions (``function_mode``), composites decided by structure, indexing, ``interpolate``, ``isinstance(n, int)``,
operators without a rule of ours, random numbers.
"""
