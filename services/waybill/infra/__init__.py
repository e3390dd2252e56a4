"""The only door to Kafka, PostgreSQL, HTTP, files, the clock and the environment.

Client libraries are imported here (and in a component's store or shell that the contracts name); their
callbacks and rows become records at this edge.
"""
