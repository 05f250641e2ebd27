"""Planning: the sizes to compile and capture for given traffic, so that the least work goes into
padding.

``traffic`` is a histogram of the sizes of calls. ``prices`` gives the cost of a call at sizes, by
formula or measured. ``candidates`` holds the sizes that calls can be padded to, and the limits of a
plan. ``dynamic_programming`` chooses among candidates along one symbol, or in bands along two.
``two_sizes`` applies it to a grid, improves the result and bounds its cost. ``choosing`` is the
choice for any traffic. ``handmade`` makes the lists that people write, for comparison.
``bucket_plan`` is the result; ``planner`` has ``symshape.plan``.
"""
