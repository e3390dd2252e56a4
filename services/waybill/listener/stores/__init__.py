"""Where a listener remembers what it did: one port, and a store for each thing a destination can bear.

`port` says what a store must do; `tests/conformance/listener` holds every store to it. `postgres` and `sqlite` are
durable, `memory` remembers within bounds, `forgetful` remembers nothing. The profile a destination declares must not
promise more than its store keeps.
"""
