"""The pure part of the demonstration: what is emitted, and the verdict on what became of it."""
