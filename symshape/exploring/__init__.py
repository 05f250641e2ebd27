"""Displays for notebooks and reports; they read data and events only."""
