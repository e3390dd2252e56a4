"""When an exception may move, and who may move it."""
