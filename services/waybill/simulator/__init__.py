"""The delivery engine under every kind of bad luck, on virtual time, from one number.

What runs here is the worker that ships: `Worker` with all that belongs to it, on an event loop that is stepped from
outside. Only what lies behind its seams is simulated: brokers that check no ownership, a database with locks and
transactions, listeners that keep their effects, clocks, and the two threads. So a process can be killed between any
two of its steps, frozen for longer than its lease, told late that it lost a partition; and the same seed does the same
again, step by step.

`schedule` draws what happens, `world` holds what there is, `run` plays it, `laws` and `inspection` say what must not
have happened. A new seam of the engine gets its fake beside the others; a new promise gets a law.
"""

from waybill.simulator.run import Verdict, play, run_seed, run_seeds
from waybill.simulator.schedule import draw

__all__ = ["Verdict", "draw", "play", "run_seed", "run_seeds"]
