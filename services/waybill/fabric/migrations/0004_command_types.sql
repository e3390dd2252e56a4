-- Entries of the catalogue are objects too. They are never retired: commands under way may name their versions.
ALTER TABLE {schema}.object
    DROP CONSTRAINT object_kind_check,
    ADD CONSTRAINT object_kind_check CHECK (kind IN ('tenant', 'outbox', 'destination', 'command-type', 'route'));
