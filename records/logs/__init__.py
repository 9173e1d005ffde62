"""Logs of records as JSON lines, and moving records between logs and stores."""
