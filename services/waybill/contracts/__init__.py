"""What crosses a process boundary: command headers, the envelope, receipts, states, topics, configuration.

Pure records and codecs. One fact, one place: the outbox columns, the Connect placement list, the Avro
schemas and the database constraints are compared with these modules by tests.
"""
