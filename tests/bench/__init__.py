"""Benchmarks against peers in one run: `python -m tests.bench --help`; the convention is in
CONTRIBUTING.md.
"""
