"""Numbered SQL of the delivery records, applied by `PostgresStore`."""
