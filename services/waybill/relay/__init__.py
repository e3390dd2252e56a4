"""The relay: connector files, their linter, the canary and recovery after slot loss."""
