"""Makes the records that a report shows (``symshape.exploring.report_records``) of guard sets, traces, caches and
Dynamo's.
"""
