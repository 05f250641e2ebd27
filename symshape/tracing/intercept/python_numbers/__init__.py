"""Builtins, operators and methods of Python's and NumPy's numbers, with symbols."""
