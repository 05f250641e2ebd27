"""Makes the records that a report shows (``symshape.exploring.records``) of guard sets, traces, caches and Dynamo's."""
