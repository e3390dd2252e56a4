"""The schema beside an outbox that remembers what was submitted to it over HTTP, in the same transaction."""
