"""What was submitted, and what a resubmission may do: reading and decisions without I/O."""
