"""What a baseline states, decided without I/O."""
