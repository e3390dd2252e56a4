"""What a key is and when it lets somebody in: records and decisions without I/O."""
