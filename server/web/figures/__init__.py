"""Figures as SVG, made on the server: they need no script, and are exported as they are shown."""
