"""Commands from producers that only speak Kafka: events of a topic, copied into the outbox.

A tenant that asks for it has a topic `ingress`, to which the operators' ACLs let producers write CloudEvents. Each
event is one command. It takes the road of a submission: the same members, the same refusals, and the same record
beside the outbox, under a key made of its `source` and `id`.

Invariants:

- **One event, one command.** Record and command are one transaction of the outbox; the offset is committed after it.
  Whatever is read again, sent again, or killed in between, the record is found.
- **Nothing is dropped in silence.** What is no command, may not be one, or says something else under a known id is a
  dead letter with its place and its reason, in the transaction that commits the offset; the next event goes on.
- **Nothing is lost while a database is away.** Its partition waits, tries again, and says so.
- **Order is that of the partition**, so events with one key become commands in their order.
- **No reason holds data.** A dead letter names the attribute or the rule.

When they do not hold, a command is issued twice, or lost while its producer believes that it was taken. The reasons
are in docs/adr/0067-an-event-from-a-topic-is-a-submission.md.
"""
