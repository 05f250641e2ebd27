"""The ledger: which offer serves a call, and which offer is worth making now.

An *offer* is a way to serve calls: the function run eagerly, a CUDA graph of exact sizes, a padded bucket.  Making one
costs time once and saves time in each call that it serves.  ``ledger`` decides, ``promise`` bounds what may be spent at
any moment, ``estimates`` foretells what calls and purchases take, ``nesting`` names the buckets that a call may be
offered.  Nothing here imports torch or reads a clock: times are milliseconds that callers pass in.
"""
