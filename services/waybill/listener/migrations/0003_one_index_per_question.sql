-- Each statement can use one index only. Tenant and destination are given in every statement and are the same in nearly
-- every row; as columns of two indexes they made both look alike to a planner without statistics, and the one without
-- the delivery's id read the whole table for each delivery. Neither name contains a slash.
ALTER TABLE {schema}.delivery
    DROP CONSTRAINT delivery_tenant_destination_operation_id_key,
    DROP CONSTRAINT delivery_pkey,
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (delivery_id, destination, tenant);
CREATE UNIQUE INDEX delivery_operation ON {schema}.delivery (operation_id, (tenant || '/' || destination));
