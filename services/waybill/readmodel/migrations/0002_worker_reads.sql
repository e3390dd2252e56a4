-- Workers look up whether a delivery was acknowledged before they tell that it failed.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT USAGE ON SCHEMA {schema} TO waybill_worker;
        GRANT SELECT ON {schema}.delivery, {schema}.position TO waybill_worker;
    END IF;
END;
$$;
