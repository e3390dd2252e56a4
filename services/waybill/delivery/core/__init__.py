"""The decisions of the delivery worker: lanes, retries, classification, positions. No I/O, no clock, no chance."""
