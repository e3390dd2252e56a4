"""The words every component shares: ids, time, errors, state machines. Standard library only, no I/O."""
