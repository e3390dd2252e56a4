"""Many deliveries sent once more: each by a decision of its own, judged where the delivery is.

`carrying` makes the decisions in batches, follows what becomes of them and stops when too many lead nowhere. Which
deliveries are meant is asked of the read model by whoever calls; what of them may be sent once more says `core.replay`.
"""
