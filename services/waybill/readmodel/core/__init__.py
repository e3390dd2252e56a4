"""Decisions of the read model: pure, from records to rows."""
