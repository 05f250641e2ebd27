"""The private parts of torch that symshape uses: each in one module, with the versions of torch
that have it.
"""
