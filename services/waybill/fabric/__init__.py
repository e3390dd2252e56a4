"""Applied configuration: parse, plan, store as versioned rows, follow while running."""
