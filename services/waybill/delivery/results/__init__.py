"""Results of a destination that answers `202`: heard, written down, weighed against where the delivery stands.

`core.results` decides what is believed and what moves; `hearing` listens for one owner and is asked before each
attempt; `weighing` looks deliveries up that no attempt leads to; `statements` keep what arrived.
"""
