"""From a scheduled program to the form that code generators read."""
