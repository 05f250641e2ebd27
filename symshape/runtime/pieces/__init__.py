"""Programs split into pieces: pieces that can be recorded, and the ops between them that run
eagerly.
"""
