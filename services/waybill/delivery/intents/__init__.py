"""Intents: attempts at destinations that cannot bear every repeat, written down before their first byte (ADR 0035).

`attempts` makes them and decides what follows, `statements` is what PostgreSQL is told. What may be repeated is
decided in `delivery.core.repeats`.
"""
