"""What a run of tuning shows and returns."""
