-- Deliveries handed over in Kafka. `pending_envelope` is the record that hands one over, signed, as long as Kafka does
-- not have it: whoever publishes it again publishes the same. `handed_to` is where it lies, until its listeners are seen
-- to have read past it; then `next_due` is the end of the wait for its result.
ALTER TABLE {schema}.open_task
    ADD COLUMN pending_envelope bytea,
    ADD COLUMN handed_to bigint CHECK (handed_to >= 0),
    ADD CONSTRAINT open_task_envelope_with_outcome CHECK (pending_envelope IS NULL OR pending_outcome IS NOT NULL),
    ADD CONSTRAINT open_task_handed_over_is_delivered CHECK (handed_to IS NULL OR state = 'delivered');
CREATE INDEX open_task_unread ON {schema}.open_task (tenant, destination, partition, handed_to)
    WHERE handed_to IS NOT NULL;
CREATE INDEX open_task_unread_expiry ON {schema}.open_task (tenant, destination, partition, expires_at)
    WHERE handed_to IS NOT NULL;
