"""The listener SDK: verify, deduplicate, execute once, answer a receipt."""
