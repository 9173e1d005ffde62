"""Tuning jobs: taken in, run in processes of their own, watched, and answered."""
