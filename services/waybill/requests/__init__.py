"""Requests: the parents of deliveries. Whether one is complete is computed from what its deliveries came to.

Nobody sets a request's standing: it is a function of commands, states and exceptions that were approved, and the
legal clock beside it is a function of when the request came and what was noted about it since.
"""
