"""Linking built code into this process and calling it on NumPy arrays."""
