"""Alembic's environment: how the tables came to be what they are.

A migration is for ever: it must not import models that will change.
"""
