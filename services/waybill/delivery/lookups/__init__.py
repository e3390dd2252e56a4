"""Before a failure is told: was the delivery acknowledged under an earlier record? `lookups` asks, `settling` waits."""
