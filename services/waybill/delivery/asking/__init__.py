"""Asking a destination what became of an `ambiguous` delivery: when, whom, and what follows from its answer.

`core.asking` decides; `asker` asks for one owner, `question` is one request and `statements` what is written of it.
"""
