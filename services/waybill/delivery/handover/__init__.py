"""What follows a hand-over in Kafka: when the wait for its result begins, and when nobody read it in time.

`core.results.handover` says what a hand-over is, `sender` makes its record, `settler` publishes it. Here is what comes after:
`listeners` ask how far a destination's listeners have read, one request for all partitions of it; `waits` begins for
one owner the waits of what they have read past, in one statement; `results` ends them.
"""
