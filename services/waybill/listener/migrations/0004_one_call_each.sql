-- What each delivery asks for, once before its handler and once behind it. As functions their plans are kept by the
-- server for as long as the connection lives, whatever else is prepared or forgotten on it, and each is one short call.

-- Records a delivery as being executed; waits for a concurrent duplicate. False: its id or its operation is recorded.
CREATE FUNCTION {schema}.claim(
    a_tenant text, a_destination text, a_delivery_id uuid, an_operation_id text, a_command_type text, an_aggregate text,
    a_body_digest bytea, an_operation_digest bytea, a_received_at timestamptz, an_expires_at timestamptz
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.delivery (tenant, destination, delivery_id, operation_id, command_type, aggregate,
                                   body_digest, operation_digest, received_at, expires_at)
    VALUES (a_tenant, a_destination, a_delivery_id, an_operation_id, a_command_type, an_aggregate,
            a_body_digest, an_operation_digest, a_received_at, an_expires_at)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

-- Gives a claimed record its receipt. Fails where there is no such record: what travels behind it must not commit then.
CREATE FUNCTION {schema}.complete(
    a_tenant text, a_destination text, a_delivery_id uuid, a_receipt text, an_executed_at timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.delivery SET receipt = a_receipt, executed_at = an_executed_at
     WHERE tenant = a_tenant AND destination = a_destination AND delivery_id = a_delivery_id;
    IF NOT FOUND THEN
        RAISE no_data_found USING MESSAGE = 'the record of this delivery is gone before its receipt';
    END IF;
END $$;
