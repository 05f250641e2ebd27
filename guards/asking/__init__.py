"""Questions and their answers: the ladder of deciders, the verdict, and terms made shorter under
facts.

A question goes through the rungs of the ladder, the cheap ones first; the answer is kept with the
component that it depends on. Asking never changes what is known. ``prove`` and ``decide`` are the
public doors.
"""
