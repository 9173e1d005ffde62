"""`lower` and `build`: from schedules and modules to functions that can be called."""
