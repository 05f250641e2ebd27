"""The cost ledger: the choice of the offer that serves a call, and of the offer that is worth
making now.

An *offer* is a way to serve calls: the function run eagerly, a CUDA graph of exact sizes, a padded
bucket.  Making an offer costs time once and saves time in each call that it serves.  ``ledger``
decides; ``promise`` bounds the time spent at any moment.  ``estimates`` predicts the times of calls
and purchases; ``nesting`` lists the buckets that may be offered to a call.  Nothing here imports
torch or reads a clock: times are milliseconds that callers pass in.
"""
