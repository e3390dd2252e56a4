"""What is kept of a delivery and how it is shown; no I/O."""
