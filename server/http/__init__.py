"""What every request and answer passes: connections, limits, tokens, errors, headers."""
