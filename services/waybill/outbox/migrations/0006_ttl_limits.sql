-- A command may be tried until it expires, so it may not live longer than its destination remembers what it did (GW-8).

ALTER TABLE {schema}.destination ADD COLUMN max_ttl_s numeric CHECK (max_ttl_s >= 0);
COMMENT ON COLUMN {schema}.destination.max_ttl_s IS
    'The longest time to live the destination can deduplicate; null until waybill apply has said it.';

-- As before, and refuses a TTL beyond what a destination of the command takes. Routes are checked when they are
-- applied; what a command says itself, only here.
CREATE OR REPLACE FUNCTION {schema}.resolve_route(tenant text, command jsonb) RETURNS {schema}.route
LANGUAGE plpgsql AS $$
DECLARE
    path {schema}.route;
    short {schema}.destination;
BEGIN
    SELECT * INTO path FROM {schema}.route x
    WHERE x.tenant = resolve_route.tenant AND x.command_type = command ->> 'command_type';
    path.destinations := coalesce({schema}.named_destinations(tenant, command), path.destinations);
    path.ttl_s := coalesce((command ->> 'ttl_s')::numeric, path.ttl_s);
    IF path.destinations IS NULL OR path.ttl_s IS NULL THEN
        PERFORM {schema}.refuse('unknown_route',
            CASE WHEN {schema}.is_type(command ->> 'command_type')
                THEN format('tenant %s has no route for %s', tenant, command ->> 'command_type')
                ELSE format('tenant %s has no route for this command type', tenant) END,
            'Declare the route in fabric.yaml and run waybill apply, or give both destinations and ttl_s.');
    ELSIF path.ttl_s <= 0 OR path.ttl_s > 315360000 THEN
        PERFORM {schema}.refuse('ttl_out_of_range', 'ttl_s must be above 0 and at most ten years', '');
    ELSIF command ? 'ttl_s' OR command ? 'destinations' THEN
        SELECT * INTO short FROM {schema}.destination d
        WHERE d.tenant = resolve_route.tenant AND d.name = ANY (path.destinations) AND d.max_ttl_s < path.ttl_s
        ORDER BY d.max_ttl_s, d.name LIMIT 1;
        IF FOUND THEN
            PERFORM {schema}.refuse('ttl_out_of_range',
                format('ttl_s %s is longer than the %s that destination %s takes',
                    path.ttl_s, short.max_ttl_s, short.name),
                'A destination must remember a command until it expires: give a shorter ttl_s, or raise its '
                'dedupRetention in fabric.yaml and run waybill apply.');
        END IF;
    END IF;
    path.capability := coalesce(command ->> 'capability', path.capability, command ->> 'command_type');
    path.capability_version := coalesce((command ->> 'capability_version')::integer, path.capability_version, 1);
    path.forms := coalesce(path.forms, '{clear,sealed,reference}');
    RETURN path;
END $$;
