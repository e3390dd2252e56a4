-- Housekeeping: days ahead, and days that are over, dropped only when the relay has read them. Three functions, each
-- for a transaction of its own: none waits for one lock while it holds another that writers need. Every row they
-- return is (action, partition, reason); `busy` means a writer held the lock for a second, the next round does it.

-- Records where the WAL stands once nobody can write into a finished partition any more; true when it moved.
CREATE FUNCTION {schema}.close_partition(name text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last bigint;
BEGIN
    -- SHARE waits for every open transaction that wrote here; what they wrote lies behind the position read next.
    EXECUTE format('LOCK TABLE {schema}.%I IN SHARE MODE', name);
    EXECUTE format('SELECT coalesce(max(position), 0) FROM {schema}.%I', name) INTO last;
    UPDATE {schema}.day_partition p SET closed_lsn = pg_current_wal_insert_lsn(), closed_position = last
    WHERE p.name = close_partition.name AND p.closed_position IS DISTINCT FROM last;
    RETURN FOUND;
END $$;

-- Rows that fell into the default partition become a partition of their own span of days; a fresh default follows.
CREATE FUNCTION {schema}.adopt_default() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first date;
    last date;
    made text;
BEGIN
    LOCK TABLE ONLY {schema}.outbox, {schema}.outbox_default IN ACCESS EXCLUSIVE MODE;
    SELECT min(created_day), max(created_day) INTO first, last FROM {schema}.outbox_default;
    made := format('outbox_%s_%s', to_char(first, 'YYYYMMDD'), to_char(last, 'YYYYMMDD'));
    ALTER TABLE {schema}.outbox DETACH PARTITION {schema}.outbox_default;
    EXECUTE format('ALTER TABLE {schema}.outbox_default RENAME TO %I', made);
    EXECUTE format('ALTER TABLE {schema}.outbox ATTACH PARTITION {schema}.%I FOR VALUES FROM (%L) TO (%L)',
        made, first, last + 1);
    INSERT INTO {schema}.day_partition (name, first_day, after_day) VALUES (made, first, last + 1);
    CREATE TABLE {schema}.outbox_default PARTITION OF {schema}.outbox DEFAULT;
    PERFORM {schema}.guard_partition('outbox_default');
    RETURN made;
END $$;

-- Today's partition and those of the days ahead: made, adopted, busy, or blocked by what people must look at.
-- Each step is a block of its own: what was returned as done is not undone by a later one.
CREATE FUNCTION {schema}.make_partitions(ahead_days integer DEFAULT 7,
    today date DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date)
RETURNS TABLE (action text, partition text, reason text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    made text;
BEGIN
    BEGIN
        IF EXISTS (SELECT FROM {schema}.outbox_default) THEN
            made := {schema}.adopt_default();
            RETURN QUERY SELECT 'adopted', made, 'rows of days without a partition';
        END IF;
    EXCEPTION
        WHEN lock_not_available THEN
            RETURN QUERY SELECT 'busy', 'outbox', 'a transaction holds the outbox; run again';
            RETURN;
        WHEN invalid_object_definition THEN
            RETURN QUERY SELECT 'blocked', 'outbox_default', 'its rows lie around days that have partitions: see the guide';
    END;
    FOR n IN 0 .. ahead_days LOOP
        BEGIN
            made := {schema}.add_partition(today + n);
            IF made IS NOT NULL THEN
                RETURN QUERY SELECT 'made', made, 'ahead';
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN QUERY SELECT 'busy', 'outbox', 'a transaction holds the outbox; run again';
                RETURN;
            WHEN check_violation THEN
                RETURN QUERY SELECT 'blocked', 'outbox_default', format('it holds rows of %s: see the guide', today + n);
        END;
    END LOOP;
END $$;

-- Finished days: closed. Again on every round: a row that came late (a clock set back) moves the position.
CREATE FUNCTION {schema}.close_partitions(today date DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date)
RETURNS TABLE (action text, partition text, reason text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    p record;
BEGIN
    FOR p IN SELECT * FROM {schema}.day_partition d WHERE d.after_day <= today ORDER BY d.first_day LOOP
        BEGIN
            IF {schema}.close_partition(p.name) THEN
                RETURN QUERY SELECT 'closed', p.name, 'its last day is over';
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            RETURN QUERY SELECT 'busy', p.name, 'a transaction that wrote there is still open; run again';
        END;
    END LOOP;
END $$;

-- The WAL position everybody who must read the outbox has confirmed; null when there is no such slot.
CREATE FUNCTION {schema}.relayed_lsn(slot text) RETURNS pg_lsn
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
RETURN (SELECT CASE WHEN bool_or(s.confirmed_flush_lsn IS NULL) THEN NULL ELSE min(s.confirmed_flush_lsn) END
    FROM pg_replication_slots s
    WHERE s.database = current_database() AND s.slot_type = 'logical' AND (slot IS NULL OR s.slot_name = slot));

-- Drops one partition unless a row came after it was closed.
CREATE FUNCTION {schema}.drop_partition(name text, closed_position bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    last bigint;
BEGIN
    EXECUTE format('LOCK TABLE ONLY {schema}.outbox, {schema}.%I IN ACCESS EXCLUSIVE MODE', name);
    EXECUTE format('SELECT coalesce(max(position), 0) FROM {schema}.%I', name) INTO last;
    IF last > closed_position THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE {schema}.%I', name);
    DELETE FROM {schema}.day_partition d WHERE d.name = drop_partition.name;
    RETURN true;
END $$;

-- Days past retention: dropped, or kept and why. `slot`: the relay's; null = every logical slot of this database.
CREATE FUNCTION {schema}.drop_partitions(keep_days integer DEFAULT 7, slot text DEFAULT NULL,
    today date DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date)
RETURNS TABLE (action text, partition text, reason text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    relayed pg_lsn := {schema}.relayed_lsn(slot);
    dropped boolean;
    p record;
BEGIN
    IF keep_days < 1 THEN
        RAISE EXCEPTION 'keep_days is at least 1' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR p IN SELECT * FROM {schema}.day_partition d WHERE d.after_day <= today - keep_days ORDER BY d.first_day LOOP
        IF p.closed_lsn IS NULL THEN
            RETURN QUERY SELECT 'kept', p.name, 'not closed yet';
        ELSIF relayed IS NULL THEN
            RETURN QUERY SELECT 'kept', p.name, 'no relay slot has confirmed anything';
        ELSIF relayed < p.closed_lsn THEN
            RETURN QUERY SELECT 'kept', p.name, format('the relay is at %s, this day ends at %s', relayed, p.closed_lsn);
        ELSE
            BEGIN
                dropped := {schema}.drop_partition(p.name, p.closed_position);
            EXCEPTION WHEN lock_not_available THEN
                RETURN QUERY SELECT 'busy', p.name, 'a transaction holds the outbox or this day; run again';
                RETURN;
            END;
            RETURN QUERY SELECT CASE WHEN dropped THEN 'dropped' ELSE 'kept' END, p.name,
                CASE WHEN dropped THEN 'past retention and relayed'
                    ELSE 'a row came after it was closed; the next round closes it again' END;
        END IF;
    END LOOP;
END $$;
