"""The tests of symshape; a package, so that `python -m tests.bench` and `python -m tests.fuzz`
work.
"""
