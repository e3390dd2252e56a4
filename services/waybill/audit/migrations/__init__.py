"""SQL of the audit chain, applied by `waybill.infra.migrate`."""
