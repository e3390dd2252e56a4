"""Numbered SQL files of the schema of requests, applied in order, each once."""
