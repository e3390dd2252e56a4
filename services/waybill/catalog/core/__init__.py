"""Decisions of the catalog: reading a declaration, comparing it with what is there, judging a schema."""
