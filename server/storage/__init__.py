"""How the server reads and writes its store, and whether it can."""
