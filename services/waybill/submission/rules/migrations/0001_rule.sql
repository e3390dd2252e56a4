-- What a resubmission may do, per principal. The newest row counts; rows are only added, so who set what is history.
CREATE TABLE {schema}.resubmission_rule (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant ~ '^[a-z][a-z0-9-]{0,29}$'),
    principal text NOT NULL CHECK (principal ~ '^[a-z][a-z0-9-]{0,29}$'),
    rule text NOT NULL CHECK (rule ~ '^(never|always|within [0-9]+(ms|s|m|h|d))$'),
    set_at timestamptz NOT NULL,
    set_by text NOT NULL CHECK (set_by <> ''),
    why text NOT NULL CHECK (why <> '')
);
CREATE INDEX rule_of_principal ON {schema}.resubmission_rule (tenant, principal, position);
