"""The storage and execution of compiled programs: the entry cache, and runners behind one protocol.

``cache`` holds entries by module state, structure and guards. ``dispatcher`` looks a call up: by
its exact key in the memo, else by its integers in the dispatch tree of its structure. The cache
owns both, and the clock by which the least recently used entry is evicted; a removed entry is
released and not found again. ``runners`` execute entries.
"""
