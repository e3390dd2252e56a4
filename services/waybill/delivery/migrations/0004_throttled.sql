-- Attempts that were refused unseen by 429: they are among `attempt` and count for nothing else.
ALTER TABLE {schema}.open_task
    ADD COLUMN throttled integer NOT NULL DEFAULT 0,
    ADD CONSTRAINT open_task_throttled CHECK (throttled BETWEEN 0 AND attempt);
