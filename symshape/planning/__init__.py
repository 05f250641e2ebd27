"""Which sizes to compile and capture for given traffic, so that the least work goes into padding.

``traffic`` is a histogram of the sizes of calls; ``prices`` what a call costs at sizes, by formula or measured;
``candidates`` are sizes that calls can be padded to, within ``limits``; ``one_symbol`` and ``two_symbols`` choose among
them by dynamic programming, ``along_one`` and ``along_two`` bring traffic and prices there; ``lists`` and ``handmade``
are what people write by hand, to compare with; ``bucket_plan`` is the result; ``planner`` puts them together.
"""
