"""Keys with ids and overlapping validity, Standard Webhooks signatures, sealing of data."""
