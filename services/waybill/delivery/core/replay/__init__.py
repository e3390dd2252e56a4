"""What of a set of deliveries is sent once more, and when to stop."""
