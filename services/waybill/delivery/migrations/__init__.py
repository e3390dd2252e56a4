"""SQL of the `delivery` schema in the control database."""
