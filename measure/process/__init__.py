"""Contained processes: a warm template, the children forked from it, what goes between them and
what they may not do. Knows nothing of programs, candidates or devices."""
