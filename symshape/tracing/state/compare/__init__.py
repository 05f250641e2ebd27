"""Comparison of recorded state at each call: is the program still that of the present state?"""
