"""Whole programs as a new user brings them: with modules in training, state, gradients and
objects.
"""
