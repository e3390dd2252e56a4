-- Least privilege. The application may call emit and nothing else: no INSERT, since a row it wrote itself could
-- carry any number. The relay may read the root and nothing else; REPLICATION it needs from an administrator.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['{app_role}', '{relay_role}'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- roles belong to the whole server: another database made it just now
            END;
        END IF;
    END LOOP;
END $$;

REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;

GRANT USAGE ON SCHEMA {schema} TO {app_role}, {relay_role};
GRANT EXECUTE ON FUNCTION {schema}.emit(text, text, text, text, text, jsonb) TO {app_role};
GRANT EXECUTE ON FUNCTION {schema}.emit(text, text, text, text, jsonb, jsonb) TO {app_role};
GRANT EXECUTE ON FUNCTION {schema}.emit(text, text, text, text, bytea, jsonb) TO {app_role};
GRANT EXECUTE ON FUNCTION {schema}.emit_many(text, jsonb) TO {app_role};
GRANT EXECUTE ON FUNCTION {schema}.canary(text, text) TO {app_role};
GRANT SELECT ON {schema}.outbox TO {relay_role};
