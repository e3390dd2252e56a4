"""What people decided about deliveries, carried out by the one who owns them.

`making` writes a decision with its record for the topic, in one transaction. The tenants' `decisions` topics
are read for all owners of a process at once. `decider` takes what concerns one partition, one decision after the other; `standstill`
brings the aggregate to rest, `ruling` judges (`core.decisions`) and does what follows, `statements` write verdict and
move in one transaction.
"""
