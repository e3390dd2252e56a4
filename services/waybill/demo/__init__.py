"""The demonstration: two tenants, three destinations, a few hundred commands, and a verdict at the end.

It runs what a user would run, through the public doors: `waybill apply`, `waybill worker run`, `waybill read-model
run`, the producer SDK inside real business transactions, listeners in processes of their own on PostgreSQL. One
listener fails and recovers, one is slow, one loses answers after it has committed, and some commands are repeated in
their topic as a relay may.

Then it judges: were business rows and commands committed together, was anything lost, did anything happen twice or in
the wrong order, is everything acknowledged? The verdict (`core/verdict.py`) is made from the listeners' own ledgers
and the producers' own notes, not from what the fabric says of itself, and it can say no: its tests doctor the books.

- `site.py`: the stack and what stands on it. `town.py`: who lives there, as a `fabric.yaml`.
- `producers.py`, `repeats.py`: what happens. `programs.py`: the fabric's processes.
- `runner.py`: the order of things; everything that was started is ended, whatever happens.
"""

from waybill.demo.runner import Options, Report, Snapshot, View, run_demo

__all__ = ["Options", "Report", "Snapshot", "View", "run_demo"]
