"""Decisions of the relay: names, rendering, lint rules, what a status means, Debezium's text forms."""
