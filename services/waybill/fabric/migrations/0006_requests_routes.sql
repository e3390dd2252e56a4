-- What became of requests leaves through the control outbox too; their topics are made by `waybill apply`.
ALTER TABLE {schema}.control_route
    DROP CONSTRAINT control_route_route_check,
    ADD CONSTRAINT control_route_route_check CHECK (route ~ '^[a-z][a-z0-9-]{0,29}\.(config|decisions|audit|requests)$');
