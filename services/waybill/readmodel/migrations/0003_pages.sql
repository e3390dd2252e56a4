-- Pages of a tenant's deliveries, newest first, each read from where the one before ended.
-- A state that overtook its command has no time yet: it comes last, and moves up when the command is folded.
CREATE INDEX delivery_pages ON {schema}.delivery (tenant, (coalesce(issued_at, '-infinity'::timestamptz)) DESC, delivery_id DESC);
