"""Versions, schemas and data: pure."""
