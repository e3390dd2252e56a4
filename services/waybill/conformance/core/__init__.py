"""Decisions of a conformance run: what is sent, what is expected, what was seen of it. No I/O."""
