"""What an event says and what becomes of it: pure."""
