"""The transactional outbox: SQL, the emit function and the producer SDK over it."""
