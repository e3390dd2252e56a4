"""How a control database that was set back in time is noticed, and how what it lost is written again.

`known` is what an owner remembers of its database, `statements` what it asks there; `rebuild` is the repair, on the
seams of `ports`; `topics` and `tables` are its two ends in Kafka and PostgreSQL. What a delivery needs is decided in
`waybill.delivery.beacons.judging`.
"""
