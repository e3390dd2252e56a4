"""Ways out: fabric events, told to destinations like any other command.

The states of deliveries are read from their topic, and those a route asks for become commands of a reserved type in
the outbox that numbers `waybill.delivery`. From there on they are commands like all others: ordered, signed, retried.

Invariants:

- **Neither lost nor doubled.** Commands, the ids of what was told and the read position are one transaction of the
  outbox's database; a state that is read again, or written again by a worker, is known by its id.
- **Order is that of the aggregate** the command was about, over all its destinations as they are read.
- **No loops.** Deliveries of Waybill's own command types are never told about.
- **Only what a route asks for is written.**
- **No data.** An event holds identifiers, states and times.

When they do not hold, a subscriber acts twice, or waits for word that never comes. The reasons are in
docs/adr/0069-an-event-is-a-command-of-the-fabric.md.
"""
