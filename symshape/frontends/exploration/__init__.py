"""Makers of the records that a report shows (``symshape.exploring.report_records``).

They read guard sets, traces, caches and Dynamo's cache.
"""
