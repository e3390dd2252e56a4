"""Numbered SQL files of the read model's own schema, applied in order, each once."""
