"""Conformance: does anybody's listener keep its side of the wire, and how would one know?

A run plays the fabric against one listener over HTTP, with a tenant and keys of its own and data marked `isTest`, and
needs neither Kafka nor a database. It makes everything a listener must bear happen once: repeats, forgeries, a wrong
clock, duplicates at one moment, a kill after the answer and one amid work. What came back, and by how much the
listener's own count of effects rose, is the evidence; the verdict over it is pure and can be read as a table.

What cannot be seen is *not tested*, never passed: without a count of effects nobody knows what was applied, and a
listener that was not started by the run is not killed by it. Which checks apply follows from the declared level (each
level holds the ones below it) and from the profile: only who claims to remember durably is asked after a kill.

- `core/evidence.py`: steps, and what was seen of each.
- `core/checks.py`: what is expected, one row per check; `core/judging.py`: the few kinds of expectation.
- `core/scorecard.py`: verdicts, the level reached, the JUnit document.
- `core/commands.py`: the commands a run sends. `sender.py`: signs them, sends them, gathers the answers; `posting.py`:
  one request and how it ended; `keys.py`: what is signed with.
- `sample.py` and `core/answering.py`: one delivery instead of a run, and what its answer means (`waybill send-test`).
- `program.py`: starts, kills and watches the listener. `steps.py`: the order of things. `run.py`: one run as a whole.

A run believes nothing of Waybill's own listener: it imports none of it.
"""

from waybill.conformance.core.scorecard import Scorecard, render_junit
from waybill.conformance.run import Subject, run_conformance
from waybill.contracts.fabric import Level

__all__ = ["Level", "Scorecard", "Subject", "render_junit", "run_conformance"]
