"""The delivery worker: ordered per aggregate, fenced, durable once off the happy path."""
