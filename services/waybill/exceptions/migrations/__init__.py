"""The schema `exceptions` of the control database: what may stay undone, by whose word and until when."""
