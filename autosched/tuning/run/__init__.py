"""A run of tuning: its rounds, its tasks, what it resumes and what it ends with."""
