"""Small programs about state outside the arguments, and what becomes of each: right, refused, or
wrong.
"""
