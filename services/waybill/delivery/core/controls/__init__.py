"""What keeps attempts of a whole destination back, as rules: pure, told the time by their callers."""
