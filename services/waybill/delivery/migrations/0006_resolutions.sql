-- What a listener is told of numbers that will not come: a row like any other, with an identity of its own. Its
-- `record` holds the signed body's bytes as its value and, as the header `ce_id`, the command of the delivery that ended.
ALTER TABLE {schema}.open_task
    ADD COLUMN kind text NOT NULL DEFAULT 'delivery'
        CONSTRAINT open_task_kind CHECK (kind IN ('delivery', 'resolution'));
