"""Tables beside the outbox that fabric events are written to."""
