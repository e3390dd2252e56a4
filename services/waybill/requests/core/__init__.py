"""Pure rules of requests: what completes one, and when it is due."""
