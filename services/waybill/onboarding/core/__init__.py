"""What is invited and how it is told; no I/O."""
