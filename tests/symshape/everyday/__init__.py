"""Small programs of every day, by class: each is traced once and held against eager at five
shapes.
"""
