"""The tables of a store, and what reads and writes them, a module for each kind of row."""
