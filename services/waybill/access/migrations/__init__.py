"""The schema `access` of the control database: keys by their digest, and the history of who did what to them."""
