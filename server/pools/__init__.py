"""The pools that a server measures on: their plan, their workers, their targets."""
