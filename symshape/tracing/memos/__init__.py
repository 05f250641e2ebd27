"""Functions with a memo (``functools.lru_cache``): their calls in a trace, and what they keep."""
