"""Decisions about results: what is believed, and what moves the delivery it is about."""
