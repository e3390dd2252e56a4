"""The outbox's database schema as numbered SQL files; see `waybill.infra.migrate`."""
