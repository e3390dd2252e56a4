"""Deliveries that are handed over in Kafka, as they are simulated: how far listeners read, and the law of it."""
