"""What is told about a state: pure."""
