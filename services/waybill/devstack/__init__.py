"""The local stack: real Kafka, Connect, Debezium, registry and PostgreSQL on one machine."""
