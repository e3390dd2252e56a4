"""Chaos on the real stack: kill, freeze and cut everything under load, then ask independent books what happened.

Real producers commit commands through a real outbox; Debezium carries them; several worker processes deliver them
through a proxy that delays, resets, halves and drips, to listeners that are slow, refuse and answer by halves.
Meanwhile workers are killed and frozen beyond their lease, members come and go, and Connect, brokers and PostgreSQL
are killed and started again. Then everything is healed, and when nothing moves any more the books are judged.

What makes the verdict worth something is that it does not depend on what it judges. Listener, proxy, books and
verdict import nothing of Waybill but each other (a test holds that), and the books are plain JSON lines: what the
producers' own transactions noted (`promised`), what the listener received and did (`ledger`, durable before it
answers), what the proxy carried (`exchanges`), what was broken when (`faults`), and the final states.

- `core/draws.py`, `core/mischief.py`, `core/schedule.py`: everything random, from one seed.
- `core/verdict.py`, `books.py`: the judgement; can be repeated over the books of an old campaign.
- `listener.py`, `proxy.py`, `wire.py`: programs of their own.
- `town.py`, `site.py`, `producers.py`: who takes part. `programs.py`, `strikes.py`: what happens to them.
- `campaign.py`: the order of things; `running.py`, `rest.py`, `closing.py`: its parts.

Only processes that a campaign or its stack started are ever ended, by their id.

This file imports nothing, so that the programs stay independent.
"""
