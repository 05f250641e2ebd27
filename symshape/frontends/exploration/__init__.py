"""Makes the records that a report shows (``symshape.explore.records``) of guard sets, traces, caches and Dynamo's."""
