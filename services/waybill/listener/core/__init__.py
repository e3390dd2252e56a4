"""Decisions of a listener: may this body be executed, was it before, what does the receipt say. No I/O."""
