"""Statistics of a benchmark: pure."""
