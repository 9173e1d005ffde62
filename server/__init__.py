"""The tuning service: HTTP, events, web pages."""
