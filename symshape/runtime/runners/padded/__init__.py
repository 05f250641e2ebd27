"""The runner of padded programs: buckets, their buffers and placement, and the results of calls."""
