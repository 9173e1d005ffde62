"""Text of programs, made in processes that examine what clients send."""
