"""Baselines: proposed, approved, sent."""
