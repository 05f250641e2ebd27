"""From text to terms: a reader of Python syntax, through ``ast`` and never ``eval``, with limits on
everything.

Text is untrusted: it comes from users, files and other processes. The reader only builds terms;
what it cannot settle without deciding (whether cases cover everything) is asked a floor above.
"""
