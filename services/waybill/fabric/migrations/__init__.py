"""SQL of the database schema `fabric`."""
