-- What a destination said when it was asked about an ambiguous delivery, the last time: who asked, when, what, and the
-- digest of the answer; never its text. `next_due` is then when to ask again.
ALTER TABLE {schema}.open_task ADD COLUMN asked jsonb;
CREATE INDEX open_task_ambiguous ON {schema}.open_task (tenant, destination, partition, next_due)
    WHERE blocks AND state = 'ambiguous';
