"""Replacements for torch and Python functions that would turn a symbolic number into a plain one
during a trace.

They cover torch functions (``function_mode``), composites decided by structure, indexing,
``interpolate``, ``isinstance(n, int)``, operators without a rule of ours, and random numbers.
"""
